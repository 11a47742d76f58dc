import CSimulation
import Glibc
import RSocket

/// One client: its socket, what it has asked for, and what it may therefore get.
///
/// An orderly one keeps to the protocol, and everything that it gets is judged. Any other sends what it likes.
final class Client {
  /// A request that brings events.
  struct Subscription {
    let stream: String
    let gaps: Bool
    let ids: Bool
    let fails: Bool
    /// Ends with its first event.
    let isOne: Bool
    let after: UInt64?
    var credit: Int
    var last: UInt64?
    var assembled: Payload?
    /// Frames that begin here or later, counted in bytes of the connection, are of a stream that it may not read.
    var forbiddenFrom: Int?
  }

  /// A request that brings values.
  struct Channel {
    let stream: String
    /// Its values' maker.
    let maker: String
    let epoch: Int
    let isNamed: Bool
    /// Values that it may send; nil for a named one that has not been told where to continue.
    var credit: Int
    var next: UInt64
    var isComplete = false
    var hasBegun: Bool
  }

  static let unlimited = 0x7fff_ffff

  let number: Int
  let user: Int64
  let isOrderly: Bool
  let descriptor: CInt
  /// Reads whatever comes at once.
  var isEager: Bool
  private unowned let world: World
  private var input: [UInt8] = []
  /// Bytes of the connection before `input`.
  private var consumed = 0
  private var output: [UInt8] = []
  private var nextID: UInt32 = 1
  private var heardAt = sim_now()
  private(set) var isOver = false
  /// It has closed the connection itself, or a half of it.
  private(set) var isLeaving = false
  var subscriptions: [UInt32: Subscription] = [:]
  private(set) var channels: [UInt32: Channel] = [:]
  private(set) var received = 0
  /// It may not send a request before a LEASE.
  private let usesLease: Bool
  private var lease = 0
  /// What it has sent, for those who send it again.
  private var sent: [UInt8] = []

  var name: String { "client \(number) (user \(user))" }

  init(_ number: Int, user: Int64, _ descriptor: CInt, isOrderly: Bool, _ world: World) {
    (self.number, self.user, self.descriptor, self.isOrderly, self.world) = (number, user, descriptor, isOrderly, world)
    isEager = world.random.chance(70)
    usesLease = isOrderly && world.random.chance(15)
    guard isOrderly else {
      if world.random.chance(80) {
        send(.setup(Setup(honorsLease: world.random.chance(10), metadataMIMEType: MetadataFormat.text.mimeType)))
      }
      return
    }
    let lifetime: Duration = world.random.pick([.seconds(90), .seconds(120)])
    send(
      .setup(
        Setup(
          maximumLifetime: lifetime, honorsLease: usesLease, metadataMIMEType: MetadataFormat.composite.mimeType)))
  }

  // MARK: Sending

  func send(_ frame: Frame) {
    var bytes: [UInt8] = []
    frame.encode(into: &bytes)
    send(raw: bytes)
  }

  func send(raw bytes: [UInt8]) {
    guard !isOver else { return }
    output += bytes
    if !isOrderly { sent = bytes }
    flush()
  }

  /// A number for a hostile client's request: mostly one that a client may use.
  func noiseID(_ random: inout Random) -> StreamID {
    guard random.chance(60) else { return StreamID(UInt32(random.below(Int(nextID) + 4))) }
    defer { nextID += 2 }
    return StreamID(nextID)
  }

  /// Sends what it was told to before once more.
  func repeatLast() { send(raw: sent) }

  private func flush() {
    guard !output.isEmpty else { return }
    let count = output.withUnsafeBytes { sim_real_send(descriptor, $0.baseAddress, $0.count) }
    if count > 0 { output.removeFirst(count) }
    if count < 0, errno != EAGAIN { output = [] }
  }

  private func takeID() -> UInt32? {
    if usesLease {
      guard lease > 0 else { return nil }
      lease -= 1
    }
    defer { nextID += 2 }
    return nextID
  }

  private func metadata(_ stream: String, _ publisher: PublisherEntry? = nil) -> [UInt8] {
    guard let metadata = try? MetadataFormat.composite.metadata(route: stream, publisher: publisher) else {
      fatalError("a name that metadata cannot carry")
    }
    return metadata
  }

  func subscribe(_ stream: String, _ random: inout Random) {
    guard subscriptions.count < 6, let id = takeID() else { return }
    var options: [String] = []
    var after: UInt64?
    let truth = world.truths[stream]
    switch random.below(6) {
    case 0: options.append(#""from":"new""#)
    case 1: options.append(#""from":"latest""#)
    case 2: options.append(#""from":"-\#(random.pick(["1s", "500ms", "1h"]))""#)
    case 3:
      if let last = truth?.last, last > 0 {
        let id = last - min(last, UInt64(random.below(40)))
        options.append(#""from":\#(id)"#)
        after = id
      }
    default: break
    }
    let fails = random.chance(15)
    if fails {
      options.append(#""on_lag":"fail""#)
    } else {
      options.append(#""on_lag":"\#(random.pick(["skip", "latest"]))""#)
    }
    let gaps = random.chance(60)
    if gaps { options.append(#""gaps":true"#) }
    let ids = random.chance(90)
    if !ids { options.append(#""ids":false"#) }
    let credit = random.pick([1, 2, 5, 32, Self.unlimited])
    subscriptions[id] = Subscription(
      stream: stream, gaps: gaps && ids, ids: ids, fails: fails, isOne: false, after: after, credit: credit)
    Report.shared.say("\(name) subscribes to \(stream) as \(id), credit \(credit), {\(options.joined(separator: ","))}")
    send(
      .request(
        StreamID(id), .stream, initialRequest: UInt32(credit),
        Payload(metadata: metadata(stream), data: Array("{\(options.joined(separator: ","))}".utf8)), follows: false,
        isComplete: false))
  }

  func ask(_ stream: String) {
    guard let id = takeID() else { return }
    subscriptions[id] = Subscription(
      stream: stream, gaps: false, ids: true, fails: false, isOne: true, after: nil, credit: 1)
    Report.shared.say("\(name) asks for a value of \(stream) as \(id)")
    send(
      .request(
        StreamID(id), .response, initialRequest: 1, Payload(metadata: metadata(stream)), follows: false,
        isComplete: false))
  }

  func grant(_ random: inout Random) {
    guard let id = random.maybe(subscriptions.keys.sorted()), let subscription = subscriptions[id], !subscription.isOne
    else { return }
    let count = random.pick([1, 1, 2, 3, 10, 100, Self.unlimited])
    Report.shared.say("\(name) grants \(count) to request \(id)")
    let credit = subscription.credit
    subscriptions[id]?.credit = credit >= Self.unlimited || count >= Self.unlimited ? Self.unlimited : credit + count
    send(.requestN(StreamID(id), UInt32(count)))
  }

  func cancel(_ random: inout Random) {
    guard let id = random.maybe(subscriptions.keys.sorted()) else { return }
    Report.shared.say("\(name) cancels request \(id)")
    subscriptions[id] = nil
    send(.cancel(StreamID(id)))
  }

  func keepAlive() {
    guard isOrderly, !isOver, sim_now() - heardAt > 15_000_000_000 else { return }
    heardAt = sim_now()
    send(.keepalive(respond: true, position: 0, data: []))
  }

  // MARK: Publishing

  /// - Parameter publisher: who goes on; nil: a nameless one.
  func publish(to stream: String, _ publisher: NamedPublisher?, _ random: inout Random) {
    guard channels.count < 3, let id = takeID() else { return }
    if let publisher {
      Report.shared.say(
        "\(name) publishes to \(stream) as \(publisher.name), from \(publisher.confirmed + 1) on, as \(id)")
      guard let entry = try? PublisherEntry(name: Array(publisher.name.utf8), firstNumber: publisher.confirmed + 1)
      else {
        fatalError("a publisher without a name")
      }
      publisher.connection = self
      channels[id] = Channel(
        stream: stream, maker: publisher.name, epoch: publisher.epoch, isNamed: true, credit: 0,
        next: publisher.confirmed + 1, hasBegun: false)
      send(
        .request(
          StreamID(id), .channel, initialRequest: UInt32(Self.unlimited),
          Payload(metadata: metadata(stream, entry)), follows: false, isComplete: false))
    } else {
      let maker = "u\(number).\(id)"
      Report.shared.say("\(name) publishes to \(stream) as \(id)")
      channels[id] = Channel(
        stream: stream, maker: maker, epoch: 0, isNamed: false, credit: 0, next: 2, hasBegun: true)
      send(
        .request(
          StreamID(id), .channel, initialRequest: 1,
          Payload(metadata: metadata(stream), data: Content(maker, 0, 1).bytes(count: random.below(200))),
          follows: false, isComplete: false))
    }
  }

  /// Sends values, within the credit.
  func sendValues(_ random: inout Random) {
    guard let id = random.maybe(channels.keys.sorted()), var channel = channels[id], channel.hasBegun,
      !channel.isComplete
    else { return }
    let limit = min(world.specification(of: channel.stream)?.largestEvent ?? 100, 60_000)
    let count = min(channel.credit, random.pick([1, 1, 2, 5, 20]))
    var bytes: [UInt8] = []
    for _ in 0..<count {
      let content = Content(channel.maker, channel.epoch, channel.next)
      let size = random.chance(95) ? random.below(300) : min(limit, random.below(70_000))
      let data = content.bytes(count: min(limit, size))
      if random.chance(90) || data.count < 2 {
        Frame.payload(StreamID(id), Payload(data: data), follows: false, isComplete: false, isNext: true)
          .encode(into: &bytes)
      } else {
        let half = 1 + random.below(data.count - 1)
        Frame.payload(StreamID(id), Payload(data: Array(data[..<half])), follows: true, isComplete: false, isNext: true)
          .encode(into: &bytes)
        Frame.payload(
          StreamID(id), Payload(data: Array(data[half...])), follows: false, isComplete: false, isNext: true
        )
        .encode(into: &bytes)
      }
      channel.next += 1
      channel.credit -= 1
    }
    Report.shared.say("\(name) sends \(count) values on \(id), up to \(channel.next - 1)")
    if channel.isNamed {
      world.publisher(channel.maker)?.sent = max(world.publisher(channel.maker)?.sent ?? 0, channel.next - 1)
    }
    channels[id] = channel
    send(raw: bytes)
  }

  func completeChannel(_ random: inout Random) {
    guard let id = random.maybe(channels.keys.sorted()), channels[id]?.hasBegun == true,
      channels[id]?.isComplete == false
    else { return }
    Report.shared.say("\(name) completes \(id)")
    channels[id]?.isComplete = true
    send(.payload(StreamID(id), Payload(), follows: false, isComplete: true, isNext: false))
  }

  func toss(to stream: String, _ random: inout Random) {
    guard let id = takeID() else { return }
    let data = Content("f\(number)", 0, UInt64(id)).bytes(count: random.below(300))
    Report.shared.say("\(name) publishes one value to \(stream), number \(id)")
    send(
      .request(
        StreamID(id), .fireAndForget, initialRequest: 0, Payload(metadata: metadata(stream), data: data),
        follows: false, isComplete: false))
  }

  // MARK: Leaving

  func close() {
    guard !isOver else { return }
    isLeaving = true
    end()
  }

  func shutDown(_ how: CInt) {
    isLeaving = true
    Glibc.shutdown(descriptor, how)
  }

  private func end() {
    isOver = true
    for (_, channel) in channels where channel.isNamed { leave(channel.maker) }
    Glibc.close(descriptor)
  }

  private func leave(_ maker: String) {
    if let publisher = world.publisher(maker), publisher.connection === self { publisher.connection = nil }
  }

  // MARK: Receiving

  /// The rules of a stream have changed, and all that is on its way was sent by the former ones.
  func review(_ stream: StreamSpecification) {
    guard isOrderly, !isOver else { return }
    for (id, subscription) in subscriptions where subscription.stream == stream.name {
      if stream.isServed && stream.admits(reader: user) {
        subscriptions[id]?.forbiddenFrom = nil
      } else if subscription.forbiddenFrom == nil {
        subscriptions[id]?.forbiddenFrom = consumed + input.count + Int(sim_waiting(descriptor))
      }
    }
  }

  /// Reads what has come, up to `limit` bytes, and judges it.
  func receive(atMost limit: Int = .max) {
    guard !isOver else { return }
    flush()
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
    judgeInput()
  }

  private func judgeInput() {
    var offset = 0
    while input.count - offset >= 3, !isOver {
      let count = Int(input[offset]) << 16 | Int(input[offset + 1]) << 8 | Int(input[offset + 2])
      guard input.count - offset >= 3 + count else { break }
      let frame = input.withUnsafeBytes {
        try? Frame.decode(UnsafeRawBufferPointer(rebasing: $0[offset + 3..<offset + 3 + count]))
      }
      guard let frame else { fail("frames", "\(name) got a frame that cannot be read") }
      judge(frame, at: consumed + offset)
      offset += 3 + count
    }
    guard offset > 0 else { return }
    input.removeFirst(offset)
    consumed += offset
  }

  private func judge(_ frame: Frame, at place: Int) {
    guard isOrderly else { return }
    switch frame {
    case .payload(let id, let payload, let follows, let isComplete, let isNext):
      let id = id.rawValue
      if let channel = channels[id] { return judge(channel, id, payload, isComplete: isComplete, isNext: isNext) }
      guard let subscription = subscriptions[id] else {
        return require(id < nextID, "frames", "\(name) got something for request \(id), which there never was")
      }
      if isNext { judge(subscription, id, payload, follows: follows, at: place) }
      if isComplete { subscriptions[id] = nil }
    case .error(let id, let code, let message): judge(id.rawValue, code, message)
    case .requestN(let id, let count):
      channels[id.rawValue]?.credit += Int(count)
    case .lease(_, let count, _): lease = Int(count)
    case .keepalive: break
    default: fail("frames", "\(name) got \(frame)")
    }
  }

  private func judge(_ id: UInt32, _ code: ErrorCode, _ message: String) {
    Report.shared.say("\(name) gets \(code) for \(id): \(message)")
    guard id > 0 else {
      world.connectionFailed(self, code, message)
      return
    }
    if let channel = channels.removeValue(forKey: id), channel.isNamed { leave(channel.maker) }
    guard let subscription = subscriptions.removeValue(forKey: id) else { return }
    if code == .lagged {
      Report.shared.count("subscriptions that lagged")
    } else if code == .rejected {
      Report.shared.count("requests refused")
    }
    _ = subscription
  }

  private func judge(_ channel: Channel, _ id: UInt32, _ payload: Payload, isComplete: Bool, isNext: Bool) {
    if isNext {
      guard channel.isNamed, let publisher = world.publisher(channel.maker) else {
        fail("frames", "\(name) got a value for what it publishes")
      }
      func number(_ offset: Int) -> UInt64 { payload.data[offset..<offset + 8].reduce(0) { $0 << 8 | UInt64($1) } }
      require(payload.data.count == (channel.hasBegun ? 8 : 16), "frames", "\(name) got \(payload.data.count) bytes")
      publisher.confirm(number(0))
      if !channel.hasBegun {
        channels[id]?.hasBegun = true
        channels[id]?.next = number(8)
        publisher.begin(at: number(8))
        Report.shared.say("\(name) is to continue \(channel.maker) at \(number(8))")
      }
    }
    if isComplete {
      require(channel.isComplete, "frames", "\(name) got COMPLETE for \(id), which is not complete")
      channels[id] = nil
      if channel.isNamed { leave(channel.maker) }
    }
  }

  private func judge(
    _ subscription: Subscription, _ id: UInt32, _ payload: Payload, follows: Bool, at place: Int
  ) {
    if let forbidden = subscription.forbiddenFrom, subscription.assembled == nil {
      require(
        place < forbidden, "access", "\(name) got an event of \(subscription.stream), which it may not read any more")
    }
    require(
      subscription.credit > 0, "credit", "request \(id) of \(name) to \(subscription.stream) got more than its credit")
    var whole = subscription.assembled ?? Payload(metadata: payload.metadata)
    whole.data += payload.data
    guard !follows else {
      subscriptions[id]?.assembled = whole
      return
    }
    subscriptions[id]?.assembled = nil
    if subscription.credit < Self.unlimited { subscriptions[id]?.credit -= 1 }
    received += 1
    guard subscription.ids else {
      Report.shared.deliveries += 1
      return require(whole.metadata == nil, "frames", "\(name) got metadata that it did not ask for")
    }
    let metadata = whole.metadata ?? []
    require([16, 24].contains(metadata.count), "frames", "\(name) got \(metadata.count) bytes of metadata")
    func number(_ offset: Int) -> UInt64 { metadata[offset..<offset + 8].reduce(0) { $0 << 8 | UInt64($1) } }
    let (event, time) = (number(0), number(8))
    judge(subscription, id, event, gap: metadata.count == 24 ? number(16) : nil)
    subscriptions[id]?.last = event
    if subscription.isOne { subscriptions[id] = nil }
    world.received(event, of: subscription.stream, by: self)
    // The server's own streams have views, each with ids of its own.
    if let truth = world.truths[subscription.stream] { truth.delivered(event, time, whole.data, to: name) }
  }

  /// Where the event stands among the others of the request.
  private func judge(_ subscription: Subscription, _ id: UInt32, _ event: UInt64, gap: UInt64?) {
    let stream = subscription.stream
    guard let last = subscription.last else {
      if let after = subscription.after {
        require(event > after, "ids rise", "\(name) asked for what comes after \(after) of \(stream) and got \(event)")
        require(
          !subscription.gaps || event == after + 1 || gap != nil, "gaps are told",
          "\(name) asked for what comes after \(after) of \(stream) and got \(event), without a word of the gap")
      }
      return
    }
    require(event > last, "ids rise", "\(name) got event \(event) of \(stream) after \(last)")
    let isNext = event == last + 1
    require(
      isNext || !subscription.fails || world.truths[stream]?.begins(between: last, and: event) ?? true, "gaps are told",
      "\(name) asked to fail, and got event \(event) of \(stream) after \(last)")
    if subscription.gaps {
      require(
        isNext == (gap == nil) || gap == nil && world.truths[stream]?.begins(between: last, and: event) == true,
        "gaps are told",
        "\(name) got event \(event) of \(stream) after \(last), with a gap of \(gap.map { "\($0)" } ?? "none")")
      if let gap, gap != .max {
        require(
          gap == event - last - 1 || world.truths[stream]?.begins(between: last, and: event) ?? true, "gaps are told",
          "\(name) got event \(event) of \(stream) after \(last), with a gap of \(gap)")
      }
    }
    guard let truth = world.truths[stream], world.specification(of: stream)?.blocks == true,
      truth.events[last + 1]?.losses == truth.losses
    else { return }
    require(
      isNext, "nothing is dropped", "\(name) got event \(event) of \(stream) after \(last), which drops nothing")
  }
}

/// A publisher that numbers its values, wherever it is connected.
final class NamedPublisher {
  let name: String
  let user: Int64
  let stream: String
  /// Up to here all is in the stream.
  private(set) var confirmed: UInt64 = 0
  /// Sent on some connection.
  var sent: UInt64 = 0
  /// Raised when values may be lost or repeated: after a loss of power.
  private(set) var epoch = 0
  weak var connection: Client?

  init(_ name: String, user: Int64, stream: String) { (self.name, self.user, self.stream) = (name, user, stream) }

  func confirm(_ number: UInt64) {
    require(number <= max(sent, confirmed), "confirmations", "\(name) is told of \(number), and has sent \(sent)")
    confirmed = max(confirmed, number)
  }

  func begin(at number: UInt64) {
    require(
      number > confirmed && number <= sent + 1, "confirmations",
      "\(name) is to continue at \(number), has sent \(sent), and \(confirmed) was confirmed")
  }

  /// Values that it has not heard of may have been lost, or come twice.
  func losePower() {
    epoch += 1
    confirmed = sent
  }
}
