import ReplayLog
import StreamProtocol

extension ServedStream {
  /// Makes, replaces or removes the stream's map, as the configuration says. Called before the stream is served, and
  /// while its log is frozen.
  ///
  /// - Parameter storage: the storage that replaces the log's present one; nil: the present one stays.
  func changeMap(to storage: EventLog? = nil, report: @escaping @Sendable (ServerReport) -> Void) {
    let former = log.read { storage, _ in storage }
    guard configuration.isMapped else {
      endMap()
      guard let map = map.withLock({ $0.take() }) else { return }
      log.read { storage, _ in storage.mirror = nil }
      return log.detach(map)
    }
    let (map, isNew) = map.withLock { map in
      let present = map ?? StreamMap(of: self, report: report)
      defer { map = present }
      return (present, map == nil)
    }
    if isNew { log.attach(map) }
    map.change(from: former, to: storage ?? former, of: log)
  }

  /// Ends the present region of the map: no event follows in it, and its readers ask for another map.
  func endMap() {
    guard let map = map.withLock({ $0 }) else { return }
    log.read { storage, _ in map.end(storage) }
    map.logDidChange()
  }

  /// Marks the map for replacement. Clients that have lost access then cannot read the events that follow.
  func revokeMap() {
    guard let map = map.withLock({ $0 }) else { return }
    log.read { _, _ in map.revoke() }
  }

  /// - Parameter user: the reader's user.
  func openMap(from start: SubscribeOptions.Start, for user: UInt32) throws(RequestFailure) -> StreamMap.Opened {
    guard let map = map.withLock({ $0 }) else { throw .notMapped(self) }
    map.renew(from: log)
    let replay = configuration.replay
    let opened = log.read { storage, _ in
      Result { () throws(SubscribeOptions.Malformed) in
        try map.open(storage, from: start, replay: replay, for: user)
      }
    }
    switch opened {
    case .failure(let error): throw .init(error)
    case .success(nil): throw .init(.noMemory, "there is no memory for the map of \"\(name)\"")
    case .success(let opened?): return opened
    }
  }

  /// The newest generation of the map, for the next process; nil: the stream is not mapped.
  var savedMapGeneration: UInt64? {
    map.withLock { $0 }.map { map in log.read { _, _ in map.newestGeneration } }
  }

  /// Makes the generation higher than this one, which another process has reached.
  func raiseMap(over generation: UInt64) {
    guard let map = map.withLock({ $0 }) else { return }
    log.read { storage, _ in map.raise(over: generation, storage) }
    map.logDidChange()
  }

  /// The map's entry in `$streams`; nil: the stream is not mapped.
  var listedMap: CatalogueEntry.Map? {
    guard configuration.isMapped else { return nil }
    let map = map.withLock { $0 }
    return .init(
      generation: log.read { _, _ in map?.generation }, readers: mapReaders.load(ordering: .relaxed))
  }
}
