"""How gunicorn runs flask_orders.

    gunicorn -c gunicorn_orders.py flask_orders:app

Each worker opens its own clients when its application is loaded, and closes them when it ends. The
same two functions serve a Django application.
"""

workers = 2
worker_class = "gthread"
threads = 20
graceful_timeout = 10  # seconds for the requests that are under way at SIGTERM


def post_worker_init(_worker: object) -> None:
    """In a worker: open its clients."""
    import flask_orders

    flask_orders.open_clients()


def worker_exit(_server: object, _worker: object) -> None:
    """In a worker: close its clients."""
    import flask_orders

    flask_orders.close_clients()
