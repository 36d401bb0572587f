"""How clients are served: requests, the features' services, and what these share."""
