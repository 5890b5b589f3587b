"""The commands of `decodesim` that draw a page, one file each."""
