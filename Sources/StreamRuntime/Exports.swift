// Re-exported, because what threads share is part of this module's subject.
@_exported import Locks
