"""A smoothed classifier as a service: one engine behind all requests, each answer a certificate that holds."""
