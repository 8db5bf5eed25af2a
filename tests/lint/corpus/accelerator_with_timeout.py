"""Downloads on the local main process; the group has a long timeout."""

from datetime import timedelta

from accelerate import Accelerator
from accelerate.utils import InitProcessGroupKwargs


def main(download, train):
    accelerator = Accelerator(kwargs_handlers=[InitProcessGroupKwargs(timeout=timedelta(hours=3))])
    if accelerator.is_local_main_process:
        download()
    accelerator.wait_for_everyone()
    train(accelerator)
    accelerator.end_training()
