import CLinux
import Glibc
import RSocket
import StreamRuntime

/// One client of a soak: connects, subscribes, grants, stalls, cancels, publishes, misbehaves and leaves at random from
/// its seed, and checks every frame that it receives.
final class SoakClient {
  enum Phase {
    case away
    case open
    /// Reads nothing, whatever credit it has granted.
    case stalled
    /// Has announced its end; the daemon closes the connection.
    case leaving
    /// Has sent an invalid frame, and expects an error before the daemon closes the connection.
    case condemned(wasTold: Bool)
  }

  struct Subscription {
    let id: StreamID
    let ledger: SoakLedger
    /// A single value, which also ends the request.
    var isResponse = false
    var credit: Int
    /// The lowest id that may come next.
    var next: UInt64
    /// Whether only that id may come next.
    var isExact = false
    /// The time until which it could not read: a gap is allowed only after an event that is not newer.
    var excusedUntil: UInt64
    /// When the daemon stored its last event.
    var time: UInt64 = 0
    var failsOnLag = false
    /// Grants no more credit; events in flight may arrive until the echo does.
    var isCancelled = false
  }

  struct Publication {
    let id: StreamID
    let ledger: SoakLedger
    let number: UInt64
    let count: Int
    var sent = 1
  }

  /// Its streams, and whether it never stalls others.
  enum Role {
    /// Subscribes to every stream with unlimited credit, and stays.
    case witness
    /// Subscribes to the stream that drops nothing; does everything except stall, and always has credit.
    case keeper
    case wanderer
  }

  let index: Int
  let role: Role
  unowned let soak: Soak
  private var dice: Dice
  var phase = Phase.away
  private(set) var socket: CInt = -1
  var subscriptions: [Subscription] = []
  var publication: Publication?
  private var publicationCount: UInt64 = 0
  private var lastID: UInt32 = 0
  private var watched: UInt32 = 0
  /// Bytes that the socket has not accepted.
  private var unsent: [UInt8] = []
  /// The beginning of an incomplete frame.
  var beginning: [UInt8] = []

  init(_ index: Int, _ role: Role, soak: Soak, seed: UInt64) {
    self.index = index
    self.role = role
    self.soak = soak
    dice = Dice(state: seed &+ UInt64(index) &* 0x1_0000_0001)
  }

  deinit { if socket >= 0 { close(socket) } }

  var isAway: Bool { socket < 0 }
  var isStalled: Bool { if case .stalled = phase { true } else { false } }
  var isOpen: Bool { if case .open = phase { true } else { false } }

  func violation(_ id: StreamID, _ what: String) -> BenchError {
    BenchError("client \(index), request \(id) of connection \(socket): \(what)")
  }

  // MARK: Actions

  /// Performs the next action.
  /// - Returns: nanoseconds until the following one.
  func act() throws -> UInt64 {
    switch phase {
    case .away: try connect()
    case .stalled: if dice.roll(5) == 0 { leave() } else { readOn() }
    case .open: if role != .witness { try decide() }
    // A closing connection gets ten seconds, because the daemon shares the machine with all clients.
    case .leaving, .condemned: throw violation(.connection, "the daemon does not hang up")
    }
    switch phase {
    case .leaving, .condemned: return 10_000_000_000
    case .away where dice.roll(2) == 0: return 1
    case .stalled: return UInt64(1000 + dice.roll(9000)) * 1_000_000
    case .away, .open: return UInt64(200 + dice.roll(3800)) * 1_000_000
    }
  }

  private func connect() throws {
    do {
      socket = try UnixSocket.connect(to: soak.path).release()
    } catch {
      guard error.code == EAGAIN else { throw error }  // all clients connect at once
      return
    }
    phase = .open
    lastID = 0
    soak.counts.connections += 1
    watched = EPOLLIN.rawValue
    try soak.watch(self, EPOLL_CTL_ADD, watched)
    say(StreamdBroker.setup)
    if role == .witness { for ledger in soak.ledgers { subscribe(to: ledger, credit: Int(Credit.unlimited)) } }
    if role == .witness { return }
    for _ in 0...dice.roll(2) { subscribe() }
  }

  private func decide() throws {
    switch dice.roll(100) {
    case 0..<18: if subscriptions.count < 4 { subscribe() } else { cancel() }
    case 18..<58: for index in subscriptions.indices { grant(index) }
    case 58..<68: if role == .wanderer { try stall() }
    case 68..<83:
      cancel()
      subscribe()
    case 83..<88: ask()
    case 88..<90: publish()
    case 90..<93: leavePolitely()
    case 93..<95: leave()
    case 95..<97:
      // Half of a request, and then nothing.
      let request = StreamdBroker.encoded(StreamdBroker.request(.stream, StreamID(lastID + 2), "b", credit: 1))
      say(bytes: Array(request.prefix(1 + dice.roll(request.count - 1))))
      leave()
    default:
      say(bytes: [0, 0, 1, UInt8(dice.roll(256))])
      phase = .condemned(wasTold: false)
    }
  }

  private func newID() -> StreamID {
    lastID += lastID == 0 ? 1 : 2
    return StreamID(lastID)
  }

  private func subscribe() {
    let ledger = role == .keeper ? soak.ledgers[2] : soak.ledgers[dice.roll(2)]
    subscribe(to: ledger, credit: dice.roll(8) == 0 ? Int(Credit.unlimited) : 1 + dice.roll(500))
  }

  private func subscribe(to ledger: SoakLedger, credit: Int) {
    let id = newID()
    var next: UInt64 = 0
    var from = "\"replay\""
    var isExact = false
    switch ledger.newest == 0 ? 0 : dice.roll(3) {
    case 0: next = ledger.newest > ledger.replay ? ledger.newest - ledger.replay + 1 : 0
    case 1:
      from = "\"new\""
      next = ledger.newest + 1
    default:
      next = ledger.newest - UInt64(dice.roll(ledger.depth)) + 1
      from = "\(next - 1)"
      isExact = !ledger.drops
    }
    let onLag = ["skip", "latest", "fail"][ledger.drops ? dice.roll(3) : 0]
    subscriptions.append(
      Subscription(
        id: id, ledger: ledger, credit: credit, next: next, isExact: isExact, excusedUntil: soak.now,
        failsOnLag: onLag == "fail"))
    say(
      StreamdBroker.request(
        .stream, id, ledger.stream, credit: UInt32(credit),
        data: Array(#"{"from":\#(from),"on_lag":"\#(onLag)"}"#.utf8)))
  }

  /// Requests the newest value, as a separate request.
  private func ask() {
    let ledger = soak.ledgers[dice.roll(soak.ledgers.count)]
    let id = newID()
    subscriptions.append(
      Subscription(
        id: id, ledger: ledger, isResponse: true, credit: 1, next: ledger.newest, excusedUntil: soak.now))
    say(StreamdBroker.request(.response, id, ledger.stream, credit: 1))
  }

  func grant(_ index: Int) {
    let subscription = subscriptions[index]
    guard !subscription.isCancelled, !subscription.isResponse, subscription.credit < 1 << 20 else { return }
    let more = 1 + dice.roll(500)
    subscriptions[index].credit += more
    if subscription.credit == 0 { subscriptions[index].excusedUntil = soak.now }
    say(.requestN(subscription.id, UInt32(more)))
  }

  private func cancel() {
    guard let index = subscriptions.firstIndex(where: { !$0.isCancelled && !$0.isResponse }) else { return }
    subscriptions[index].isCancelled = true
    let id = subscriptions[index].id
    say(.cancel(id))
    // Events that arrive for it after the echo were sent after the daemon had read the CANCEL.
    say(.keepalive(respond: true, position: 0, data: Array("\(id)".utf8)))
  }

  private func stall() throws {
    phase = .stalled
    try watch()
    for index in subscriptions.indices { subscriptions[index].excusedUntil = .max }
  }

  func readOn() {
    guard isStalled else { return }
    phase = .open
    try? watch()
    for index in subscriptions.indices { subscriptions[index].excusedUntil = soak.now }
  }

  private func publish() {
    guard publication == nil else { return }
    let ledger = soak.ledgers[1 + dice.roll(2)]
    let (id, number) = (newID(), UInt64(index + 1) << 20 | publicationCount)
    publicationCount += 1
    let first = SoakValue(publication: number, index: 0).bytes
    guard dice.roll(3) > 0 else {  // best effort
      return say(StreamdBroker.request(.fireAndForget, id, ledger.stream, credit: 0, data: first))
    }
    publication = Publication(id: id, ledger: ledger, number: number, count: 2 + dice.roll(6))
    say(StreamdBroker.request(.channel, id, ledger.stream, credit: 1, data: first))
  }

  func publish(_ publication: Publication, within credit: UInt32) {
    let end = min(publication.count, publication.sent + Int(credit))
    for index in publication.sent..<end {
      let value = Payload(data: SoakValue(publication: publication.number, index: index).bytes)
      say(.payload(publication.id, value, follows: false, isComplete: false, isNext: true))
    }
    self.publication?.sent = end
    guard end == publication.count, publication.sent < end else { return }
    say(.payload(publication.id, Payload(), follows: false, isComplete: true, isNext: false))
  }

  func leavePolitely() {
    guard isOpen else { return leave() }
    say(.error(.connection, .connectionClose, "bye"))
    phase = .leaving
  }

  /// Closes the connection without notice, with frames in flight in both directions.
  func leave() {
    if socket >= 0 { close(socket) }
    socket = -1
    phase = .away
    subscriptions = []
    publication = nil
    unsent = []
    beginning = []
  }

  // MARK: Output

  private func say(_ frame: Frame) { say(bytes: StreamdBroker.encoded(frame)) }

  private func say(bytes: [UInt8]) {
    unsent += bytes
    flush()
  }

  /// Ignores errors: reading reports a connection that the daemon closed.
  func flush() {
    guard socket >= 0, !unsent.isEmpty else { return }
    let count = unsafe send(socket, unsent, unsent.count, CInt(MSG_NOSIGNAL))
    unsent.removeFirst(max(0, count))
    try? watch()
  }

  private func watch() throws {
    let wanted = (isStalled ? 0 : EPOLLIN.rawValue) | (unsent.isEmpty ? 0 : EPOLLOUT.rawValue)
    guard wanted != watched else { return }
    watched = wanted
    try soak.watch(self, EPOLL_CTL_MOD, wanted)
  }
}

/// SplitMix64: the same choices from the same seed, on every machine.
struct Dice {
  var state: UInt64

  mutating func roll(_ sides: Int) -> Int {
    state &+= 0x9e37_79b9_7f4a_7c15
    var mixed = state
    mixed = (mixed ^ mixed >> 30) &* 0xbf58_476d_1ce4_e5b9
    mixed = (mixed ^ mixed >> 27) &* 0x94d0_49bb_1331_11eb
    return Int((mixed ^ mixed >> 31) % UInt64(sides))
  }
}
