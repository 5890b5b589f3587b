"""The commands of `decodesim` that draw no page, one file each: parse, call the library, print."""
