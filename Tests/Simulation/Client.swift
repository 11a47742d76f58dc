import CSimulation
import Glibc

/// What the server sees of a client's socket.
enum Peer: Hashable {
  /// A user of the machine.
  case user(UInt32)
  /// A peer over TCP, as inet_pton(3) reads it: it has no credentials.
  case address(String)
  /// A Unix socket without credentials.
  case unknown

  /// As `sim_connect` takes it.
  var text: String {
    switch self {
    case .user(let number): "u\(number)"
    case .address(let address): "a\(address)"
    case .unknown: ""
    }
  }

  /// The user id, by which streams admit it; nil: only streams for anyone admit it.
  var user: UInt32? { if case .user(let number) = self { number } else { nil } }

  /// The last three are hosts that the others are, too.
  static let addresses = ["192.0.2.1", "192.0.2.2", "2001:db8::1", "2001:db8::2", "::ffff:192.0.2.1"]

  static func random(_ random: inout Random) -> Self {
    switch random.below(20) {
    case 0: .unknown
    case 1, 2, 3: .address(random.pick(addresses))
    default: .user(random.pick(StreamSpecification.users))
    }
  }
}

/// One client: its socket, and what arrives there. A subclass for each protocol sends requests and judges the replies.
///
/// The steps of a run ask each kind of client for the same actions; one that its protocol does not have does nothing.
class Client {
  let number: Int
  let peer: Peer
  let descriptor: CInt
  unowned let world: World
  /// Whether it reads whatever arrives at once.
  var isEager: Bool
  private var input: [UInt8] = []
  /// Bytes of the connection before `input`.
  private var consumed = 0
  private var output: [UInt8] = []
  private(set) var isOver = false
  /// Whether it has closed the connection itself, or a half of it.
  private(set) var isLeaving = false
  private(set) var hasStoppedReading = false
  /// When it had last read all that was there.
  private(set) var caughtUpAt = sim_now()

  /// Whether it keeps to the protocol, so that the server has to serve it.
  var isOrderly: Bool { true }
  /// Whether the server may end the connection now, by the protocol.
  var mayEnd: Bool { false }
  var name: String { "client \(number) (\(peer))" }

  init(_ number: Int, _ peer: Peer, _ descriptor: CInt, _ world: World) {
    (self.number, self.peer, self.descriptor, self.world) = (number, peer, descriptor, world)
    isEager = world.random.chance(world.profile.eagerClients)
  }

  // MARK: Actions

  func subscribe(to stream: String, _ random: inout Random) {}
  /// Requests one event.
  func ask(_ stream: String) {}
  func grant(_ random: inout Random) {}
  func cancel(_ random: inout Random) {}
  /// - Parameter publisher: the one that publishes; nil: a nameless one.
  func publish(to stream: String, _ publisher: NamedPublisher?, _ random: inout Random) {}
  /// Sends values, within the credit.
  func sendValues(_ random: inout Random) {}
  func completeChannel(_ random: inout Random) {}
  func fireAndForget(to stream: String, _ random: inout Random) {}
  /// Shows the server that it is alive, and does what else is due.
  func keepAlive() {}
  /// Sends nothing any more, and reads as before.
  func halfClose() {}

  // MARK: Judgement

  /// Judges whole messages at the start of `bytes`.
  ///
  /// - Parameter place: the position of the first byte in the connection.
  /// - Returns: how many bytes they are.
  func judge(_ bytes: UnsafeRawBufferPointer, at place: Int) -> Int { bytes.count }

  /// The rules of streams have changed, and bytes of the connection up to `place` may be from before.
  func review(at place: Int) {}

  /// Another process continues with the connection: it sends what comes after `place`.
  func handedOver(at place: Int) {}

  /// All is at rest: the server has answered what it can.
  func checkAtRest() {}

  /// Whether all its subscriptions wait for credit.
  var lacksCredit: Bool { false }

  /// Whether a subscription to the stream waits for credit.
  func lacksCredit(for stream: String) -> Bool { false }

  /// Its subscriptions to `$streams`.
  var catalogues: [Subscription] { [] }

  /// The connection is over.
  func ended() {}

  // MARK: The socket

  func send(_ bytes: [UInt8]) {
    guard !isOver else { return }
    output += bytes
    flush()
  }

  /// Sends what it has not sent yet.
  final func flush() {
    guard !isOver, !output.isEmpty else { return }
    let limit = min(output.count, world.sendLimit)
    let count = output.withUnsafeBytes { sim_real_send(descriptor, $0.baseAddress, limit) }
    if count > 0 { output.removeFirst(count) }
    if count < 0, errno != EAGAIN { output = [] }
  }

  /// Reads what has arrived, up to `limit` bytes, and judges it.
  final func receive(atMost limit: Int = .max) {
    guard !isOver else { return }
    flush()
    guard !hasStoppedReading else { return }
    var left = limit
    while left > 0 {
      let count = world.buffer.withUnsafeMutableBytes {
        sim_real_recv(descriptor, $0.baseAddress, min($0.count, left))
      }
      if count == 0 || count < 0 && errno != EAGAIN && errno != EINTR {
        judgeInput()
        if !isOver {
          world.connectionEnded(self)
          end()
        }
        return
      }
      guard count > 0 else { break }
      input += world.buffer[..<count]
      left -= count
      if count < min(world.buffer.count, left + count) { break }
    }
    if left > 0 { caughtUpAt = sim_now() }
    judgeInput()
  }

  private func judgeInput() {
    let count = input.withUnsafeBytes { judge($0, at: consumed) }
    guard count > 0 else { return }
    input.removeFirst(count)
    consumed += count
  }

  /// All that has arrived, or is in the socket, was sent under the former rules of streams.
  final func review() {
    if isOrderly, !isOver { review(at: reached) }
  }

  final func noteHandover() {
    if isOrderly, !isOver { handedOver(at: reached) }
  }

  /// Bytes of the connection so far.
  private var reached: Int { consumed + input.count + Int(sim_waiting(descriptor)) }

  /// Whether all that it has sent is in the socket.
  final var hasSentAll: Bool { output.isEmpty }

  /// The beginning of what has arrived and was not judged, for people.
  final var unjudged: String {
    "\(input.count) bytes: \(String(decoding: input.prefix(300), as: UTF8.self))"
  }

  final func close() {
    guard !isOver else { return }
    isLeaving = true
    end()
  }

  final func shutDown(_ how: CInt) {
    isLeaving = true
    Glibc.shutdown(descriptor, how)
  }

  /// Reads nothing any more, and sends as before: the server learns of it when it writes.
  final func stopReading() {
    Report.shared.say("\(name) stops reading")
    hasStoppedReading = true
    shutDown(CInt(SHUT_RD))
  }

  private func end() {
    isOver = true
    ended()
    Glibc.close(descriptor)
  }
}
