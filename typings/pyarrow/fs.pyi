from enum import Enum

class FileType(Enum):
    NotFound = 0
    Unknown = 1
    File = 2
    Directory = 3

class FileInfo:
    type: FileType

class FileSystem:
    def create_dir(self, path: str, *, recursive: bool = True) -> None: ...
    def delete_file(self, path: str) -> None: ...
    def get_file_info(self, paths_or_selector: str) -> FileInfo: ...
    def move(self, src: str, dest: str) -> None: ...
    @staticmethod
    def from_uri(uri: str) -> tuple[FileSystem, str]: ...

class LocalFileSystem(FileSystem):
    def __init__(self, *, use_mmap: bool = False) -> None: ...
