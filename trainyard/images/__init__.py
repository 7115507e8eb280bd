"""Training images: build them from a directory of images/, check, push, and resolve them."""
