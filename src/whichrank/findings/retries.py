"""Requests that a library repeats: a shard that is read from a hub or bucket, an upload that does not go through.

The method tells the direction; where a library does not print it, the name of what was asked for. Wording:
huggingface_hub 0.11 to 1.x (`http_backoff`: "'…' thrown while requesting GET URL", "HTTP Error 503 thrown while
requesting GET URL"), urllib3 1.21 to 2.x and what stands on it (requests, botocore: "Retrying (Retry(total=2, …)) after
connection broken by '…': /path"), datasets 1.x to 4.x ("Got disconnected from remote data host. Retrying in 5sec
[1/20]"), gcsfs and s3fs at DEBUG carry no name of their own and are left out.
"""

from __future__ import annotations

import re
from typing import Literal

Request = Literal["data", "loading", "upload"]

_REQUESTED = re.compile(r"thrown while requesting (?P<method>[A-Z]{3,7}) (?P<url>\S+)")
_BROKEN = re.compile(r"\bRetrying \(.{0,200}after connection broken by .*: (?P<url>/\S*)\s*$")
_READ_AGAIN = "Got disconnected from remote data host"
ASKED = re.compile(r"thrown while requesting|after connection broken by|Got disconnected from remote data host")

# Trackers and package indices send and fetch beside the training loop, from threads of their own.
_BESIDE = re.compile(r"/graphql\b|/file_stream\b|/simple/|/api/2\.0/mlflow|\bwandb\b|\bpypi\b|/telemetry", re.I)
_WEIGHTS = re.compile(
    r"\.(?:safetensors|bin|pth?|ckpt|gguf|distcp)(?:$|[?.])|(?:config|tokenizer\w*|generation_config|index|vocab)\.(?:json|txt|model)(?:$|\?)",
    re.I,
)
_SHARD = re.compile(
    r"/datasets/|\.(?:tar|parquet|arrow|jsonl?|mds|tfrecords?|npy|npz|zip|csv|zarr|h5|wds|webdataset|mp4|flac|wav|jpe?g|png)(?:\.(?:gz|zst|bz2|xz))?(?:$|\?)",
    re.I,
)


def request_of(text: str) -> Request | None:
    """What a line about a repeated request was after, or None.

    >>> request_of("'The read operation timed out' thrown while requesting GET https://hub/datasets/a/resolve/main/t.tar")
    'data'
    >>> request_of("HTTP Error 503 thrown while requesting PUT https://bucket.s3.amazonaws.com/step_400/model.bin")
    'upload'
    >>> request_of("'timed out' thrown while requesting HEAD https://hub/org/model/resolve/main/config.json")
    'loading'
    >>> request_of("Retrying (Retry(total=4, connect=None)) after connection broken by 'ReadTimeoutError()': /graphql")
    """
    if match := _REQUESTED.search(text):
        return _of(match["method"], match["url"])
    if match := _BROKEN.search(text):
        url = match["url"]
        return _of("GET", url) if _SHARD.search(url) or _WEIGHTS.search(url) else None
    return "data" if _READ_AGAIN in text else None


def _of(method: str, url: str) -> Request | None:
    if _BESIDE.search(url):
        return None
    if method in ("PUT", "POST", "PATCH"):
        return "upload"
    if "/datasets/" in url:
        return "data"
    if _WEIGHTS.search(url) or method == "HEAD":
        return "loading"
    return "data"


def asked_for(text: str) -> str:
    """The last part of the address that was asked for, without its query: "t-00006.tar"; empty where none is told."""
    match = _REQUESTED.search(text) or _BROKEN.search(text)
    return re.split(r"[?#]", match["url"])[0].rstrip("/").rpartition("/")[2] if match else ""
