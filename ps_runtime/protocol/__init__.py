"""What a role and a ps say to each other: messages, their bodies, and the interface that takes them."""
