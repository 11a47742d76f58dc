/// A client's connection without its socket: the machine, the bytes that the socket has not taken, KEEPALIVE, and the
/// silence of the server. It holds no socket, clock or thread; a time is any that only grows.
///
/// The owner passes what it reads to ``receive(_:at:into:)``, acts on the events, and then calls ``write(_:)``. It calls
/// ``next(at:)`` when that says, and ends the connection if the server is silent or ``isUnread``.
public struct ClientSession: Sendable {
  /// Makes the requests, and has what they send.
  public var machine: ConnectionMachine
  private var unwritten: ArraySlice<UInt8> = []
  /// The errno of a write that has failed: the server is gone, but its last bytes may still be readable. Later output is
  /// dropped.
  public private(set) var writeError: CInt?
  /// The number of unwritten bytes beyond which ``isUnread`` is true.
  public var unwrittenByteLimit: Int
  /// Whether anything was received. Over TCP, this shows that the connection was made.
  public private(set) var hasReceived = false
  /// Whether the owner reads what comes. While it does not, the server may be silent, and is not asked for an answer, which
  /// would fill its memory.
  public private(set) var isReading = true
  private let keepaliveInterval, maximumLifetime: Duration
  /// The time of the last received bytes, or since when they are read.
  private var heardAt: Duration
  private var keepaliveDue: Duration

  /// - Parameters:
  ///   - setup: the first output.
  ///   - asksAtOnce: whether the first KEEPALIVE, whose answer shows that the server accepts the connection, comes at
  ///     once, instead of after the interval.
  public init(
    connectingWith setup: Setup, limits: ConnectionLimits, unwrittenByteLimit: Int, asksAtOnce: Bool, at now: Duration
  ) {
    machine = ConnectionMachine(connectingWith: setup, limits: limits)
    (keepaliveInterval, maximumLifetime) = (setup.keepaliveInterval, setup.maximumLifetime)
    self.unwrittenByteLimit = unwrittenByteLimit
    (heardAt, keepaliveDue) = (now, asksAtOnce ? now : now + keepaliveInterval)
  }

  /// Receives bytes, which may be split anywhere; values that are whole frames are gathered: see
  /// ``ConnectionMachine/Event/payloads(_:_:)``.
  public mutating func receive(
    _ bytes: UnsafeRawBufferPointer, at now: Duration, into events: inout [ConnectionMachine.Event]
  ) {
    (heardAt, hasReceived) = (now, true)
    unsafe machine.receive(bytes, gathersValues: true, into: &events)
  }

  /// Says whether the owner reads what comes. The silence of the server begins anew with the reading.
  public mutating func setReading(_ isReading: Bool, at now: Duration) {
    if isReading, !self.isReading { heardAt = now }
    self.isReading = isReading
  }

  // MARK: Writing

  /// The number of bytes that the socket has not taken.
  public var unwrittenByteCount: Int { unwritten.count + machine.outputByteCount }

  /// After ``write(_:)``: whether bytes wait until the socket takes more.
  public var awaitsSocket: Bool { !unwritten.isEmpty }

  /// Whether the server does not read what is sent to it.
  public var isUnread: Bool { unwrittenByteCount > unwrittenByteLimit }

  /// Writes all output, as far as the socket takes it.
  ///
  /// - Parameter send: takes bytes, of which there is at least one. It returns their number, 0 if it takes none now, or a
  ///   negative errno.
  public mutating func write(_ send: (UnsafeRawBufferPointer) -> Int) {
    while true {
      if unwritten.isEmpty { unwritten = machine.takeOutput()[...] }
      guard !unwritten.isEmpty, writeError == nil else { break }
      let count = unsafe unwritten.withUnsafeBytes { unsafe send($0) }
      guard count != 0 else { return }
      if count > 0 { unwritten = unwritten.dropFirst(count) } else { writeError = CInt(-count) }
    }
    unwritten = []
  }

  // MARK: Time

  /// Sends a KEEPALIVE if one is due, and the socket has taken what was sent before.
  ///
  /// - Returns: when to call again at the latest; nil: the server is silent for the maximum lifetime.
  public mutating func next(at now: Duration) -> Duration? {
    if isReading, now >= heardAt + maximumLifetime { return nil }
    if now >= keepaliveDue {
      if !awaitsSocket { machine.sendKeepalive(respond: isReading) }
      keepaliveDue = now + keepaliveInterval
    }
    return isReading ? min(keepaliveDue, heardAt + maximumLifetime) : keepaliveDue
  }
}
