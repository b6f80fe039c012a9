"""What smoothcert costs beside the bare network, a plain loop and another toolbox; see README.md here."""
