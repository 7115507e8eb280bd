"""Training images: build them from images/, check, push and resolve them."""
