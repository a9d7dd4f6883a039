"""``ttaps serve``: a page that shows one image being adapted, and the HTTP service behind it. docs/serving.md says how to use it."""

LOOPBACK = ("127.0.0.1", "localhost", "::1")  # names of this machine, which other machines cannot use
