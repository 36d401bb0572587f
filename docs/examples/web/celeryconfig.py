"""The queue of celery_orders: a folder, so that nothing else has to run. Name your own here."""

from pathlib import Path

_QUEUE, _CONTROL, _RESULTS = (
    Path.cwd() / "celery-data" / name for name in ("queue", "control", "results")
)
for folder in (_QUEUE, _CONTROL, _RESULTS):
    folder.mkdir(parents=True, exist_ok=True)

broker_url = "filesystem://"
broker_transport_options = {
    "data_folder_in": str(_QUEUE),
    "data_folder_out": str(_QUEUE),
    "control_folder": str(_CONTROL),
    "polling_interval": 0.1,  # seconds
}
result_backend = _RESULTS.as_uri()
worker_prefetch_multiplier = 1
