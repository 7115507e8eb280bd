module trainyard/tests/bed/pause

go 1.24
