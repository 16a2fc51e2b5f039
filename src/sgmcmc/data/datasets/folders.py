"""Where the files of the datasets are, and where the copies of them are kept."""

import os
from pathlib import Path

from platformdirs import user_cache_dir

from sgmcmc.core.errors import SgmcmcError

FOLDER_SETTING = "SGMCMC_DATA"
"""The environment variable that names the data folder."""


def cache_folder() -> Path:
    """The platform's folder for what can be made again."""
    return Path(user_cache_dir("sgmcmc"))


def data_folder() -> Path:
    """The folder the user named, which must be there, or else the cache folder, which need not."""
    named = os.environ.get(FOLDER_SETTING)
    if not named:
        return cache_folder()
    folder = Path(named).expanduser()
    if not os.path.isdir(folder):  # not Path.is_dir, which raises where looking is not allowed
        raise SgmcmcError(
            f"{FOLDER_SETTING} is {named!r}, which is not a folder; make it, or set {FOLDER_SETTING} to the folder that has the "
            "files, or unset it to download them into the cache folder"
        )
    return folder
