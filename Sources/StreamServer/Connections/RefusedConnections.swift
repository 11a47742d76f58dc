import CLinux
import Glibc
import HTTP
import ReplayLog
import StreamProtocol
import StreamRuntime

/// Connections that are refused before they are served, at a limit or because nothing is served: each gets one answer in
/// its own protocol, and is closed. Confined to one loop.
///
/// The first bytes of a client select the protocol. A connection waits for them, and then for its client to read the
/// answer, in one of a few places and for a short time in all. If no place is free, the connection that has waited
/// longest is answered according to the bytes that have arrived, and closed. A flood of connections over a limit
/// therefore costs a fixed number of descriptors and bytes. The more connections arrive, the less time each of them
/// has.
public final class RefusedConnections: @unchecked Sendable {  // loop-confined
  /// The number of connections that may wait. Each has a descriptor, and up to 32 KiB of a request's head.
  public static let capacity = 16
  /// The places that hosts, whose addresses cost nothing, may take together.
  static let capacityForHosts = 12

  private let loop: EventLoop
  private let time: Duration
  private var hosts: Set<String>?
  private var origins: Set<String>
  /// The connections that wait, in the order of their arrival; at most ``capacity``.
  private var waiting: [RefusedConnection] = []
  private var isClosed = false
  private var input = [UInt8](repeating: 0, count: 16 << 10)

  /// - Parameters:
  ///   - loop: the loop on which the connections are read and written.
  ///   - time: the longest time of a connection that waits.
  ///   - hosts: names of the server for requests over HTTP, as in `ServerLimits`; nil: any.
  ///   - origins: the origins of other sites whose pages may read the answer.
  public init(
    on loop: EventLoop, time: Duration = .seconds(1), hosts: Set<String>? = nil, origins: Set<String> = []
  ) {
    (self.loop, self.time, self.hosts, self.origins) = (loop, time, hosts, origins)
  }

  /// Replaces the names of the server and the origins. On the loop.
  func setNames(hosts: Set<String>, origins: Set<String>) {
    loop.assertOnLoop()
    (self.hosts, self.origins) = (hosts, origins)
  }

  /// The number of connections that wait. On the loop.
  var count: Int { waiting.count }

  /// The clients that are not refused: those with a token.
  struct Admission {
    let tokens: ClientTokens
    /// Called once for a client that has sent none.
    let refused: () -> Void
    /// Gets the socket of another client, and what was read from it.
    let admitted: (consuming OwnedDescriptor, ClientToken, [UInt8]) -> Void
  }

  /// Refuses a new connection, non-blocking. On the loop.
  ///
  /// - Parameters:
  ///   - socket: the connection.
  ///   - sentence: the reason, for people.
  ///   - reason: the same, for programs.
  public func refuse(
    _ socket: consuming OwnedDescriptor, _ sentence: String, reason: FailureReason = .tooManyConnections
  ) {
    refuse(socket, sentence, reason: reason, input: [])
  }

  /// - Parameter input: what was read from the socket.
  func refuse(
    _ socket: consuming OwnedDescriptor, _ sentence: String, reason: FailureReason = .tooManyConnections,
    input: [UInt8], unless admission: Admission? = nil
  ) {
    loop.assertOnLoop()
    let isUnixSocket = PeerCredentials(of: socket.raw) != nil
    let rules = hosts.map { OriginRules(hosts: $0, origins: origins, isUnixSocket: isUnixSocket) }
    let date = ResponseHead.date(secondsSinceEpoch: EventLoop.wallClock() / 1_000_000)
    let machine = RefusalMachine(sentence, rules, reason: reason, date: date, tokens: admission?.tokens)
    let connection = RefusedConnection(socket, machine, self, isHost: !isUnixSocket, admission)
    if input.isEmpty { connection.takeInput() } else { connection.take(input[...]) }
    guard !connection.isDone else { return }
    if !isUnixSocket, waiting.count(where: \.isHost) == Self.capacityForHosts {
      waiting.first(where: \.isHost)?.finish()
    }
    if waiting.count == Self.capacity { waiting[0].finish() }
    guard !isClosed, connection.wait(on: loop, for: time) else { return connection.finish() }
    waiting.append(connection)
  }

  /// Closes the connections that wait; later ones do not wait. On the loop.
  public func close() {
    loop.assertOnLoop()
    isClosed = true
    for connection in waiting { connection.finish() }
  }

  fileprivate func forget(_ connection: RefusedConnection) { waiting.removeAll { $0 === connection } }

  /// Reads once, into memory that all connections share.
  /// - Returns: nil if nothing has arrived; empty at the end.
  fileprivate func read(_ socket: CInt) -> ArraySlice<UInt8>? {
    let count = unsafe input.withUnsafeMutableBytes { unsafe LocalSocket.receive(socket, into: $0) }
    guard count >= 0 else { return errno == EAGAIN || errno == EINTR ? nil : [] }
    return input[..<count]
  }
}

/// A refused connection. It is released with its place, and its socket closes with it.
private final class RefusedConnection: EventLoop.Handler {
  private var socket: OwnedDescriptor
  private var machine: RefusalMachine
  /// Whether the kernel names no user for it.
  let isHost: Bool
  private let admission: RefusedConnections.Admission?
  private let owner: RefusedConnections
  private var registration: EventLoop.Registration?
  private var timer: TimerID?
  private var loop: EventLoop?
  private var isAnswered = false
  /// Whether nothing is left to do.
  private(set) var isDone = false

  init(
    _ socket: consuming OwnedDescriptor, _ machine: RefusalMachine, _ owner: RefusedConnections, isHost: Bool,
    _ admission: RefusedConnections.Admission?
  ) {
    self.socket = socket
    (self.machine, self.owner, self.isHost, self.admission) = (machine, owner, isHost, admission)
  }

  /// Waits in a place.
  /// - Returns: false when the kernel watches no more descriptors.
  func wait(on loop: EventLoop, for time: Duration) -> Bool {
    self.loop = loop
    registration = try? loop.register(socket.raw, for: .readable, handler: self)
    guard registration != nil else { return false }
    timer = loop.schedule(after: time) { [self] in
      timer = nil
      finish()
    }
    return true
  }

  func descriptorIsReady(_ readiness: EventLoop.Readiness) { takeInput() }

  /// Reads the bytes that have arrived, and answers once they suffice.
  func takeInput() {
    guard let bytes = owner.read(socket.raw) else { return }
    guard !bytes.isEmpty else { return finish() }
    take(bytes)
  }

  func take(_ bytes: ArraySlice<UInt8>) {
    guard !isAnswered else { return }
    if let answer = machine.receive(bytes) { return send(answer) }
    guard let token = machine.token else { return }
    isAnswered = true
    leave()
    var taken = OwnedDescriptor(-1)
    swap(&taken, &socket)
    admission?.admitted(taken, token, machine.head)
  }

  /// Sends the answer, which fits into the buffer of a new socket.
  private func send(_ answer: [UInt8]) {
    isAnswered = true
    admission?.refused()
    _ = unsafe Glibc.send(socket.raw, answer, answer.count, CInt(MSG_NOSIGNAL | MSG_DONTWAIT))
    // A close with unread input would discard the bytes that the client has not read (RFC 9112, section 9.6).
    if machine.isHTTP { shutdown(socket.raw, CInt(SHUT_WR)) } else { leave() }
  }

  /// Its time is over, or the client sends nothing more: answers according to the bytes that have arrived, and closes.
  func finish() {
    if !isAnswered { send(machine.lateAnswer) }
    leave()
  }

  private func leave() {
    guard !isDone else { return }
    isDone = true
    if let loop, let registration { loop.unregister(registration) }
    if let loop, let timer { loop.cancel(timer) }
    (registration, timer) = (nil, nil)
    owner.forget(self)
  }
}
