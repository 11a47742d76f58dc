import CSimulation
import Glibc
import RSocket

/// A request that publishes values.
struct Channel {
  let stream: String
  /// Its values' maker.
  let maker: String
  let epoch: Int
  let isNamed: Bool
  /// Values that it may send.
  var credit = 0
  var next: UInt64
  var isComplete = false
  /// Whether it may send: a named one is told first where to continue.
  var hasBegun: Bool
}

/// A client that keeps to RSocket, and judges every frame that it gets.
class RSocketClient: Client {
  private(set) var subscriptions: [UInt32: Subscription] = [:]
  private var patterns: [UInt32: PatternReading] = [:]
  private var channels: [UInt32: Channel] = [:]
  /// Events of which a part has arrived, and where in the connection they began.
  private var partial: [UInt32: (payload: Payload, place: Int)] = [:]
  private var nextID: UInt32 = 1
  private var heardAt = sim_now()
  /// Whether it may not send a request before a LEASE.
  private let usesLease: Bool
  private var lease = 0

  override init(_ number: Int, _ peer: Peer, _ descriptor: CInt, _ world: World) {
    usesLease = world.random.chance(15)
    super.init(number, peer, descriptor, world)
    let lifetime: Duration = world.random.pick([.seconds(90), .seconds(120)])
    send(
      .setup(
        Setup(
          maximumLifetime: lifetime, honorsLease: usesLease, metadataMIMEType: MetadataFormat.composite.mimeType)))
  }

  final func send(_ frame: Frame) {
    var bytes: [UInt8] = []
    frame.encode(into: &bytes)
    send(bytes)
  }

  /// The id of a new request; nil: none is allowed now.
  func takeID() -> UInt32? {
    if usesLease {
      guard lease > 0 else { return nil }
      lease -= 1
    }
    defer { nextID += 2 }
    return nextID
  }

  func metadata(_ stream: String, _ publisher: PublisherEntry? = nil) -> [UInt8] {
    guard let metadata = try? MetadataFormat.composite.metadata(route: stream, publisher: publisher) else {
      fatalError("a name that metadata cannot carry")
    }
    return metadata
  }

  // MARK: Requests

  override func subscribe(to stream: String, _ random: inout Random) {
    guard subscriptions.count < 6, let id = takeID() else { return }
    var options: [String] = []
    var after: UInt64?
    let isFromState = world.isFromState(stream, &random)
    switch random.below(6) {
    case _ where isFromState: options.append(#""from":"state""#)
    case 0: options.append(#""from":"new""#)
    case 1: options.append(#""from":"latest""#)
    case 2: options.append(#""from":"-\#(random.pick(["1s", "500ms", "1h"]))""#)
    case 3:
      if let last = world.truths[stream]?.last, last > 0 {
        let id = last - min(last, UInt64(random.below(40)))
        options.append(#""from":\#(id)"#)
        after = id
      }
    default: break
    }
    let onLag = random.chance(15) ? "fail" : random.pick(["skip", "latest"])
    options.append(#""on_lag":"\#(onLag)""#)
    let isSlow = isFromState && random.chance(world.profile.slowStates)
    let gaps = random.chance(isSlow ? 90 : 60)
    if gaps { options.append(#""gaps":true"#) }
    let ids = random.chance(90)
    if !ids { options.append(#""ids":false"#) }
    let filter = world.profile.someFilter(of: stream, &random)
    if let filter { options.append("\"where\":\(filter.json(for: stream))") }
    let hasMarkers = ids && random.chance(world.profile.markers)
    if hasMarkers { options.append(#""marker":true"#) }
    let credit = random.pick(isSlow ? [1, 1, 2, 3] : [1, 2, 5, 32, Subscription.unlimited])
    Report.shared.say("\(name) subscribes to \(stream) as \(id), credit \(credit), {\(options.joined(separator: ","))}")
    request(
      id,
      Subscription(
        to: stream, gaps: gaps, ids: ids, onLag: onLag, after: after, where: filter, hasMarkers: hasMarkers,
        isFromState: isFromState, credit: credit, by: self), options: options)
  }

  /// Reads all streams that a pattern fits.
  /// - Parameter former: what it continues; nil: it begins.
  func read(_ pattern: String, continuing former: PatternReading.Position? = nil, _ random: inout Random) {
    guard patterns.isEmpty, let id = takeID() else { return }
    // That of a text is for one stream.
    let filter =
      former == nil ? world.profile.someFilter(of: "t/a", &random).flatMap { $0 == .text ? nil : $0 } : former?.filter
    let hasMarkers = former?.hasMarkers ?? random.chance(world.profile.markers)
    let credit = random.pick([1, 5, 32, Subscription.unlimited, Subscription.unlimited])
    var options = [#""names":true"#, #""gaps":true"#, #""on_lag":"skip""#]
    if let former {
      options.append("\"from\":\(former.time)")
    } else if random.chance(30) {
      options.append(#""from":"new""#)
    }
    if let filter { options.append("\"where\":\(filter.json(for: "t/a"))") }
    if hasMarkers { options.append(#""marker":true"#) }
    Report.shared.say("\(name) reads \(pattern) as \(id), credit \(credit), {\(options.joined(separator: ","))}")
    Report.shared.count("patterns: \(former == nil ? "begun" : "resumed")")
    patterns[id] = PatternReading(
      pattern, where: filter, hasMarkers: hasMarkers, continuing: former, credit: credit, by: self)
    send(
      .request(
        StreamID(id), .stream, initialRequest: UInt32(credit),
        Payload(metadata: metadata(pattern), data: Array("{\(options.joined(separator: ","))}".utf8)), follows: false,
        isComplete: false))
  }

  /// As the bystander does: reads a stream, all of it.
  func follow(_ stream: String) {
    guard let id = takeID() else { return }
    request(
      id, Subscription(to: stream, gaps: true, ids: true, credit: Subscription.unlimited, by: self),
      options: [#""gaps":true"#])
  }

  /// Reads a stream, or its state, with credit for one event alone.
  func hold(_ stream: String, isFromState: Bool) {
    guard let id = takeID() else { return }
    Report.shared.say("\(name) holds \(isFromState ? "the state of " : "")\(stream) as \(id)")
    request(
      id, Subscription(to: stream, gaps: true, ids: true, isFromState: isFromState, credit: 1, by: self),
      options: [#""gaps":true"#] + (isFromState ? [#""from":"state""#] : []))
  }

  override func ask(_ stream: String) {
    guard let id = takeID() else { return }
    Report.shared.say("\(name) asks for a value of \(stream) as \(id)")
    request(id, Subscription(to: stream, gaps: false, ids: true, isOne: true, credit: 1, by: self), options: [])
  }

  private func request(_ id: UInt32, _ subscription: Subscription, options: [String]) {
    subscriptions[id] = subscription
    let data = options.isEmpty ? [] : Array("{\(options.joined(separator: ","))}".utf8)
    send(
      .request(
        StreamID(id), subscription.isOne ? .response : .stream, initialRequest: UInt32(subscription.credit),
        Payload(metadata: metadata(subscription.stream), data: data), follows: false, isComplete: false))
  }

  override func grant(_ random: inout Random) {
    if random.chance(40), let id = patterns.keys.min() {
      let count = random.pick([1, 3, 10, 100, Subscription.unlimited])
      Report.shared.say("\(name) grants \(count) to pattern \(id)")
      patterns[id]?.grant(count)
      return send(.requestN(StreamID(id), UInt32(count)))
    }
    var ids = subscriptions.keys.sorted()
    let isSlow = random.chance(world.profile.slowStates)
    let readers = isSlow ? ids.filter { subscriptions[$0]?.isReadingState == true } : []
    if !readers.isEmpty { ids = readers }
    guard let id = random.maybe(ids), subscriptions[id]?.isOne == false else { return }
    let count = random.pick(readers.isEmpty ? [1, 1, 2, 3, 10, 100, Subscription.unlimited] : [1, 1, 2, 3])
    Report.shared.say("\(name) grants \(count) to request \(id)")
    subscriptions[id]?.grant(count)
    send(.requestN(StreamID(id), UInt32(count)))
  }

  /// Grants every request as much as it can use.
  func grantAll() {
    for id in subscriptions.keys.sorted() {
      subscriptions[id]?.grant(Subscription.unlimited)
      send(.requestN(StreamID(id), UInt32(Subscription.unlimited)))
    }
  }

  /// Cancels a pattern; goes on with it some time later.
  private func cancelPattern(_ id: UInt32) {
    Report.shared.say("\(name) cancels pattern \(id)")
    if let position = patterns[id]?.position(of: peer) { world.remember(position) }
    (patterns[id], partial[id]) = (nil, nil)
    send(.cancel(StreamID(id)))
  }

  override func cancel(_ random: inout Random) {
    if random.chance(30), let id = patterns.keys.min() { return cancelPattern(id) }
    guard let id = random.maybe(subscriptions.keys.sorted()) else { return }
    Report.shared.say("\(name) cancels request \(id)")
    (subscriptions[id], partial[id]) = (nil, nil)
    send(.cancel(StreamID(id)))
  }

  override func keepAlive() {
    guard !isOver, sim_now() - heardAt > 15_000_000_000 else { return }
    heardAt = sim_now()
    // The server learns of a client that does not read when it sends it something.
    send(.keepalive(respond: !hasStoppedReading, position: 0, data: []))
  }

  // MARK: Publishing

  override func publish(to stream: String, _ publisher: NamedPublisher?, _ random: inout Random) {
    guard channels.count < 3, let id = takeID() else { return }
    if let publisher {
      Report.shared.say(
        "\(name) publishes to \(stream) as \(publisher.name), from \(publisher.confirmed + 1) on, as \(id)")
      guard let entry = try? PublisherEntry(name: publisher.bytes, firstNumber: publisher.confirmed + 1) else {
        fatalError("a publisher without a name")
      }
      publisher.connection = self
      channels[id] = Channel(
        stream: stream, maker: publisher.name, epoch: publisher.epoch, isNamed: true, next: publisher.confirmed + 1,
        hasBegun: false)
      send(
        .request(
          StreamID(id), .channel, initialRequest: UInt32(Subscription.unlimited),
          Payload(metadata: metadata(stream, entry)), follows: false, isComplete: false))
    } else {
      let maker = "u\(number).\(id)"
      Report.shared.say("\(name) publishes to \(stream) as \(id)")
      channels[id] = Channel(stream: stream, maker: maker, epoch: 0, isNamed: false, next: 2, hasBegun: true)
      send(
        .request(
          StreamID(id), .channel, initialRequest: 1,
          Payload(metadata: metadata(stream), data: content(maker, 1, of: stream, count: random.below(200))),
          follows: false, isComplete: false))
    }
  }

  private func content(_ maker: String, _ number: UInt64, of stream: String, count: Int) -> [UInt8] {
    Content(maker, 0, number).bytes(count: count, as: world.specification(of: stream)?.content ?? .plain)
  }

  override func sendValues(_ random: inout Random) {
    guard let id = random.maybe(channels.keys.sorted()), var channel = channels[id], channel.hasBegun,
      !channel.isComplete
    else { return }
    let specification = world.specification(of: channel.stream)
    let limit = min(specification?.largestEvent ?? 100, 60_000)
    let count = min(channel.credit, random.pick([1, 1, 2, 5, 20]))
    var bytes: [UInt8] = []
    for _ in 0..<count {
      let size = random.below(random.chance(world.profile.largeEvents / 2) ? 70_000 : 300)
      let data = Content(channel.maker, channel.epoch, channel.next)
        .bytes(count: min(limit, size), as: specification?.content ?? .plain, hasLines: specification?.isText ?? false)
      let half = random.chance(90) || data.count < 2 ? 0 : 1 + random.below(data.count - 1)
      if half > 0 {
        Frame.payload(StreamID(id), Payload(data: Array(data[..<half])), follows: true, isComplete: false, isNext: true)
          .encode(into: &bytes)
      }
      Frame.payload(StreamID(id), Payload(data: Array(data[half...])), follows: false, isComplete: false, isNext: true)
        .encode(into: &bytes)
      channel.next += 1
      channel.credit -= 1
    }
    Report.shared.say("\(name) sends \(count) values on \(id), up to \(channel.next - 1)")
    if channel.isNamed, let publisher = world.publisher(channel.maker) {
      publisher.sent = max(publisher.sent, channel.next - 1)
    }
    channels[id] = channel
    send(bytes)
  }

  override func completeChannel(_ random: inout Random) {
    guard let id = random.maybe(channels.keys.sorted()), let channel = channels[id], channel.hasBegun,
      !channel.isComplete
    else { return }
    Report.shared.say("\(name) completes \(id)")
    channels[id]?.isComplete = true
    send(.payload(StreamID(id), Payload(), follows: false, isComplete: true, isNext: false))
  }

  override func fireAndForget(to stream: String, _ random: inout Random) {
    guard let id = takeID() else { return }
    let data = content("f\(number)", UInt64(id), of: stream, count: random.below(300))
    Report.shared.say("\(name) publishes one value to \(stream), number \(id)")
    send(
      .request(
        StreamID(id), .fireAndForget, initialRequest: 0, Payload(metadata: metadata(stream), data: data),
        follows: false, isComplete: false))
  }

  // MARK: Judgement

  /// The request that ended because the next process cannot continue it; that of a connection that was not handed over.
  private var endedByRestart: UInt32?

  override func review(at place: Int) {
    for id in subscriptions.keys { subscriptions[id]?.review(at: place, for: self) }
    for id in patterns.keys { patterns[id]?.review(at: place, for: self) }
  }

  override func handedOver(at place: Int) {
    for id in subscriptions.keys { subscriptions[id]?.handedOver() }
  }

  override func checkAtRest() {
    require(
      endedByRestart == nil, "every request is answered",
      "a restart ended request \(endedByRestart ?? 0) of \(name), whose connection continues")
    for id in patterns.keys { patterns[id]?.checkAtRest(self) }
    for subscription in subscriptions.values {
      subscription.checkAtRest(self)
      guard world.isOfTemplate(subscription.stream), !subscription.isOne else { continue }
      require(
        world.machine.isServed(subscription.stream), "streams in use stay",
        "\(name) has a subscription to \(subscription.stream), which is not there")
    }
  }

  override var catalogues: [Subscription] { subscriptions.values.filter { $0.stream == "$streams" } }

  override func lacksCredit(for stream: String) -> Bool {
    subscriptions.values.contains { $0.stream == stream && $0.credit == 0 }
  }

  override var lacksCredit: Bool { !subscriptions.isEmpty && subscriptions.values.allSatisfy { $0.credit == 0 } }

  override func ended() {
    for pattern in patterns.values { if let position = pattern.position(of: peer) { world.remember(position) } }
    for channel in channels.values { leave(channel) }
  }

  override func judge(_ bytes: UnsafeRawBufferPointer, at place: Int) -> Int {
    var offset = 0
    while bytes.count - offset >= 3, !isOver {
      let count = Int(bytes[offset]) << 16 | Int(bytes[offset + 1]) << 8 | Int(bytes[offset + 2])
      guard bytes.count - offset >= 3 + count else { break }
      guard let frame = try? Frame.decode(UnsafeRawBufferPointer(rebasing: bytes[offset + 3..<offset + 3 + count]))
      else { fail("frames", "\(name) got a frame that cannot be read") }
      judge(frame, at: place + offset)
      offset += 3 + count
    }
    return offset
  }

  final func judge(_ frame: Frame, at place: Int) {
    switch frame {
    case .payload(let id, let payload, let follows, let isComplete, let isNext):
      let id = id.rawValue
      if channels[id] != nil { return judge(payload, ofChannel: id, isComplete: isComplete, isNext: isNext) }
      if patterns[id] != nil {
        if isNext { judge(payload, ofPattern: id, follows: follows, at: place) }
        return require(!isComplete, "patterns", "\(name) got COMPLETE for the pattern \(id)")
      }
      guard subscriptions[id] != nil else {
        return require(id < nextID, "frames", "\(name) got something for request \(id), which there never was")
      }
      if isNext { judge(payload, ofSubscription: id, follows: follows, at: place) }
      if isComplete { subscriptions[id] = nil }
    case .error(let id, let code, let message): judge(id.rawValue, code, message)
    case .requestN(let id, let count): channels[id.rawValue]?.credit += Int(count)
    case .lease(_, let count, _): lease = Int(count)
    case .keepalive: break
    default: fail("frames", "\(name) got \(frame)")
    }
  }

  private func judge(_ id: UInt32, _ code: ErrorCode, _ message: String) {
    Report.shared.say("\(name) gets \(code) for \(id): \(message)")
    require(!message.hasPrefix("lagged: 0 "), "gaps are reported", "\(name) is late by nothing: \(message)")
    guard id > 0 else { return world.connectionFailed(self, code, message) }
    if message == "streamd is restarting" { endedByRestart = id }
    if let channel = channels.removeValue(forKey: id) {
      leave(channel)
      require(
        !message.contains("restarts"), "every request is answered",
        "a restart ends \(name)'s channel \(id): \(message)"
      )
    }
    partial[id] = nil
    if let pattern = patterns.removeValue(forKey: id), let position = pattern.position(of: peer) {
      world.remember(position)
    }
    guard let subscription = subscriptions.removeValue(forKey: id) else { return }
    subscription.wasRemoved(message, self)
    subscription.stateFailed(message, self)
    if code == .lagged {
      Report.shared.count("subscriptions that lagged")
    } else if code == .rejected {
      Report.shared.count("requests refused")
    }
  }

  private func judge(_ payload: Payload, ofPattern id: UInt32, follows: Bool, at place: Int) {
    guard let pattern = patterns[id] else { return }
    let (former, start) = partial[id] ?? (payload: Payload(metadata: payload.metadata), place: place)
    if partial[id] == nil { pattern.begins(self) }
    var whole = former
    whole.data += payload.data
    partial[id] = follows ? (whole, start) : nil
    guard !follows else { return }
    var metadata = (whole.metadata ?? [])[...]
    let fixed = 16 + (pattern.filter == nil ? 0 : 8) + 8 + (pattern.hasMarkers ? 1 : 0) + 9
    require(metadata.count >= fixed, "frames", "\(name) got \(metadata.count) bytes of metadata for a pattern")
    func number() -> UInt64 {
      defer { metadata = metadata.dropFirst(8) }
      return metadata.prefix(8).reduce(0) { $0 << 8 | UInt64($1) }
    }
    let (event, time) = (number(), number())
    let leftOut = pattern.filter == nil ? nil : number()
    let gap = number()
    let isMarker = pattern.hasMarkers && metadata.popFirst() == 1
    let position = number()
    let length = Int(metadata.popFirst() ?? 0)
    require(metadata.count == length, "frames", "\(name) got a name of \(metadata.count) bytes instead of \(length)")
    if isMarker {
      require(whole.data.isEmpty && length == 0, "markers", "\(name) got a marker of \(pattern.text) with data")
      patterns[id]?.receivedMarker(at: position, self)
    } else {
      patterns[id]?.received(
        Stamp(id: event, time: time, gap: gap == 0 ? nil : gap, leftOut: leftOut),
        of: String(decoding: metadata, as: UTF8.self), at: position, whole.data, from: start, self)
    }
  }

  private func judge(_ payload: Payload, ofSubscription id: UInt32, follows: Bool, at place: Int) {
    guard let subscription = subscriptions[id] else { return }
    let (former, start) = partial[id] ?? (payload: Payload(metadata: payload.metadata), place: place)
    if partial[id] == nil { subscription.begins(at: place, self) }
    var whole = former
    whole.data += payload.data
    partial[id] = follows ? (whole, start) : nil
    guard !follows else { return }
    var metadata = (whole.metadata ?? [])[...]
    let least = 16 + (subscription.filter == nil ? 0 : 8) + (subscription.hasMarkers ? 1 : 0)
    require(
      subscription.ids
        ? metadata.count == least || metadata.count == least + 8 && subscription.gaps
        : whole.metadata == nil, "frames", "\(name) got \(metadata.count) bytes of metadata")
    guard subscription.ids else {
      subscriptions[id]?.received(nil, whole.data, from: start, self)
      return
    }
    let hasGap = metadata.count > least
    func number() -> UInt64 {
      defer { metadata = metadata.dropFirst(8) }
      return metadata.prefix(8).reduce(0) { $0 << 8 | UInt64($1) }
    }
    let (event, time) = (number(), number())
    let leftOut = subscription.filter == nil ? nil : number()
    let stamp = Stamp(id: event, time: time, gap: hasGap ? number() : nil, leftOut: leftOut)
    require([nil, 0, 1].contains(metadata.first), "frames", "\(name) got a payload of the kind \(metadata.first ?? 0)")
    if metadata.first == 1 {
      require(whole.data.isEmpty, "markers", "\(name) got a marker of \(subscription.stream) with data")
      subscriptions[id]?.receivedMarker(stamp, self)
    } else {
      subscriptions[id]?.received(stamp, whole.data, from: start, self)
    }
    if subscription.isOne { subscriptions[id] = nil }
  }

  /// The channel is over.
  private func leave(_ channel: Channel) {
    guard channel.isNamed, let publisher = world.publisher(channel.maker) else { return }
    if publisher.connection === self { publisher.connection = nil }
    if publisher.isOfOneRun { world.forget(publisher) }
  }

  private func judge(_ payload: Payload, ofChannel id: UInt32, isComplete: Bool, isNext: Bool) {
    guard let channel = channels[id] else { return }
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
      leave(channel)
    }
  }
}
