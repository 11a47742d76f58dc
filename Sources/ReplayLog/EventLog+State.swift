import Events

// The newest event of each key, as a part of a log.

extension EventLog {
  /// Considers an event that is about to be appended, if it has a key.
  @inline(__always) func consider(
    _ keys: EventKeys?, _ index: Int, _ data: UnsafeRawBufferPointer, time: UInt64
  ) {
    guard let state, let keys else { return }
    if index % KeyedState.approachedCount == 0 { state.approach(keys, from: index) }
    unsafe keys.withKey(of: index) { key, isTombstone in
      guard unsafe !key.isEmpty else { return }
      unsafe state.put(key, isTombstone: isTombstone, data, id: endPosition, time: time, commit: commit)
    }
  }

  /// Takes over the state of another log, whose events this log already has. Events that cannot be taken over are
  /// considered again, if the other log still has all of them.
  func takeOverState(_ other: EventLog) {
    guard let state, let settings = limits.state else { return }
    var since = other.firstPosition
    state.begin(StateDescription(keyDigest: settings.keyDigest, begin: since))
    if let old = other.state, old.description.keyDigest == settings.keyDigest {
      let lost = old.description.incompleteness
      since = lost?.since ?? old.consideredEnd
      if since < other.endPosition, unsafe settings.key == nil || since < other.firstPosition {
        state.setDescription(old.description)
        if lost == nil { state.setDamaged(since: since) }
        since = .max
      }
      state.take(old, upTo: since)
      if since == .max { since = max(old.consideredEnd, other.firstPosition) }
    }
    var position = other.skip(since)
    while let key = unsafe settings.key, position < other.endPosition {
      let data = unsafe other.layout.data(of: position)
      if let key = unsafe key(data) { unsafe state.putAgain(key, data, id: position, time: other.time(of: position)) }
      position = other.following(position)
    }
    state.use(upTo: other.endPosition)
  }
}
