"""`python -m smoothcert`, which is what torchrun starts."""

from smoothcert.commands import main

main()
