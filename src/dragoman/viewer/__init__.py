"""What attention looks at: a record of its weights becomes a page or a picture."""
