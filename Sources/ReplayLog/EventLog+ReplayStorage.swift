import Reactive

// Apart from the rest, which needs nothing of `Reactive`.
extension EventLog: ReplayStorage {}
