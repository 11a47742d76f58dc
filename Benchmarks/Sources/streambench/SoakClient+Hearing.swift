import Glibc
import RSocket

// Checks the input of a soak client.

extension SoakClient {
  func isReady() throws {
    flush()
    guard socket >= 0, !isStalled else { return }
    let buffer = unsafe soak.buffer
    unsafe buffer.copyBytes(from: beginning)
    let carried = beginning.count
    guard let base = buffer.baseAddress else { return }
    let count = unsafe recv(socket, base + carried, buffer.count - carried, 0)
    guard count > 0 else { return try hungUp(count < 0 ? errno : 0) }
    var start = 0
    while carried + count - start >= 3 {
      let frame = unsafe base + start
      let byteCount = unsafe PayloadFrame.byteCount(at: frame)
      guard carried + count - start >= byteCount else { break }
      try unsafe receive(UnsafeRawBufferPointer(start: frame, count: byteCount))
      start += byteCount
    }
    beginning = unsafe Array(buffer[start..<carried + count])
  }

  private func hungUp(_ code: CInt) throws {
    if code == EAGAIN || code == EINTR { return }
    switch phase {
    case .leaving, .condemned(wasTold: true): leave()
    case .condemned(wasTold: false): throw violation(.connection, "closed without an ERROR for a broken frame")
    case .away, .open, .stalled: throw violation(.connection, "the daemon hung up (errno \(code))")
    }
  }

  private func receive(_ frame: UnsafeRawBufferPointer) throws {
    guard let base = frame.baseAddress, frame.count >= PayloadFrame.headerByteCount else {
      throw violation(.connection, "a frame of \(frame.count) bytes")
    }
    if case .condemned(wasTold: true) = phase { throw violation(.connection, "a frame behind the last one") }
    if unsafe base.load(fromByteOffset: 7, as: UInt8.self) >> 2 == 0x0a,
      unsafe PayloadFrame.flags(at: base).contains(.next)
    {
      return try unsafe receiveEvent(base)
    }
    guard let decoded = try unsafe Frame.decode(UnsafeRawBufferPointer(rebasing: frame[3...])) else { return }
    switch decoded {
    case .keepalive(respond: false, _, let data):
      let id = StreamID(UInt32(String(decoding: data, as: UTF8.self)) ?? 0)
      subscriptions.removeAll { $0.id == id }
    case .requestN(publication?.id, let credit): if let publication { publish(publication, within: credit) }
    case .payload(publication?.id, _, _, isComplete: true, _): confirmed()
    case .error(publication?.id, .rejected, _): publication = nil  // no room
    case .error(let id, let code, let message): try receiveError(id, code, message)
    default: throw violation(.connection, "unexpected \(decoded)")
    }
  }

  private func confirmed() {
    guard let publication else { return }
    publication.ledger.confirm(publication.number, count: publication.count)
    soak.counts.confirmed += publication.count
    self.publication = nil
  }

  private func receiveError(_ id: StreamID, _ code: ErrorCode, _ message: String) throws {
    if id == .connection, case .condemned = phase, code == .connectionError {
      phase = .condemned(wasTold: true)
      return
    }
    guard code == .lagged, let index = subscriptions.firstIndex(where: { $0.id == id }) else {
      throw violation(id, "ERROR \(code), \(message)")
    }
    guard subscriptions[index].failsOnLag, mayLag(subscriptions[index]) else {
      throw violation(id, "\(message), of \(subscriptions[index].ledger.stream), and it was always ready")
    }
    soak.counts.lags += 1
    subscriptions.remove(at: index)
  }

  /// Whether the client may lose events: through its own delay, or that of a slow turn of the soak.
  private func mayLag(_ subscription: Subscription) -> Bool {
    subscription.ledger.drops && subscription.time <= max(subscription.excusedUntil, soak.slowTurnAt)
  }

  private func receiveEvent(_ frame: UnsafeRawPointer) throws {
    let id = unsafe PayloadFrame.streamID(at: frame)
    guard let index = subscriptions.firstIndex(where: { $0.id == id }) else {
      throw violation(id, "an event for a request that is over")
    }
    let subscription = subscriptions[index]
    guard subscription.credit > 0 else { throw violation(id, "an event beyond the credit") }
    let flags = unsafe PayloadFrame.flags(at: frame)
    guard unsafe PayloadFrame.metadataByteCount(at: frame) == 16, unsafe PayloadFrame.dataByteCount(at: frame) >= 0,
      !flags.contains(.follows), flags.contains(.complete) == subscription.isResponse
    else { throw violation(id, "an event with the flags \(flags) and other metadata than an id and a time") }
    let metadata = unsafe frame + PayloadFrame.headerByteCount + PayloadFrame.metadataLengthByteCount
    let event = unsafe UInt64(bigEndian: metadata.loadUnaligned(as: UInt64.self))
    let data = unsafe UnsafeRawBufferPointer(start: metadata + 16, count: PayloadFrame.dataByteCount(at: frame))
    if let mistake = unsafe subscription.ledger.enter(event, data) {
      throw violation(id, "\(subscription.ledger.stream), event \(event): \(mistake)")
    }
    soak.counts.deliveries += 1
    if event != subscription.next {
      guard event > subscription.next, !subscription.isExact || mayLag(subscription) else {
        throw violation(id, "\(subscription.ledger.stream), event \(event) instead of \(subscription.next)")
      }
      if subscription.isExact { soak.counts.lags += 1 }
    }
    if subscription.isResponse {
      subscriptions.remove(at: index)
      return
    }
    subscriptions[index].next = event + 1
    subscriptions[index].isExact = true
    subscriptions[index].time = unsafe UInt64(bigEndian: (metadata + 8).loadUnaligned(as: UInt64.self))
    if subscription.credit < 1 << 30 { subscriptions[index].credit -= 1 }
    if role == .keeper, subscription.credit < 100 { grant(index) }
  }

  /// Checks the final state, without events in flight: each subscription with credit has received everything.
  func settle() throws {
    guard isOpen else { return }
    for subscription in subscriptions {
      guard subscription.credit > 0, subscription.isExact || subscription.isResponse else { continue }
      guard subscription.next > subscription.ledger.newest, !subscription.isResponse else {
        throw violation(
          subscription.id,
          "\(subscription.ledger.stream), stuck before event \(subscription.next), credit \(subscription.credit)")
      }
    }
  }
}
