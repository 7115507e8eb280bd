"""Short-lived pods that prove something: an image on every host, GPUs before a cluster wants them."""
