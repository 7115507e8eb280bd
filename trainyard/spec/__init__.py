"""Read cluster, job and image files as frozen, validated models, or report all problems at once."""
