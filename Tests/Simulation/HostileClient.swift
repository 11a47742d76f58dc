import Glibc
import RSocket

/// A client that sends anything, and reads without judgement.
final class HostileClient: Client {
  private var nextID: UInt32 = 1
  /// What it has sent last, to be sent again.
  private var sent: [UInt8] = []
  private let speaksHTTP: Bool
  /// Whether it keeps to the protocol as far as the server can tell, so that its connection lasts, but uses a few ids again
  /// and again, without waiting for replies: no reply can be judged, as it may be to a former request.
  private let reusesIDs: Bool
  /// The few ids that it has not cancelled.
  private var openIDs: Set<UInt32> = []

  override var isOrderly: Bool { false }

  override init(_ number: Int, _ peer: Peer, _ descriptor: CInt, _ world: World) {
    speaksHTTP = world.profile.isHostileOverHTTP(&world.random)
    reusesIDs = !speaksHTTP && world.random.chance(40)
    super.init(number, peer, descriptor, world)
    guard !speaksHTTP, reusesIDs || world.random.chance(80) else { return }
    var bytes: [UInt8] = []
    Frame.setup(Setup(honorsLease: world.random.chance(10), metadataMIMEType: MetadataFormat.text.mimeType))
      .encode(into: &bytes)
    send(bytes)
  }

  override func send(_ bytes: [UInt8]) {
    sent = bytes
    super.send(bytes)
  }

  func repeatLast() { send(sent) }

  /// A request's id: mostly one that a client may use.
  private func someID(_ random: inout Random) -> StreamID {
    guard random.chance(60) else { return StreamID(UInt32(random.below(Int(nextID) + 4))) }
    defer { nextID += 2 }
    return StreamID(nextID)
  }

  func sendNoise(_ random: inout Random) {
    guard !reusesIDs else { return send(requestsWithFewIDs(random.pick([2, 8, 30]), &random)) }
    var bytes: [UInt8] = []
    for _ in 0..<random.pick([1, 1, 3, 20]) {
      if speaksHTTP { bytes += HostileRequest.some(&random) } else { frame(&random).encode(into: &bytes) }
    }
    switch random.below(6) {
    case 0: bytes = random.bytes(random.below(200))
    case 1:
      for _ in 0...random.below(4) where !bytes.isEmpty { bytes[random.below(bytes.count)] = UInt8(random.below(256)) }
    case 2: bytes = Array(bytes.prefix(random.below(bytes.count + 1)))
    default: break
    }
    Report.shared.say("\(name) sends \(bytes.count) bytes of anything")
    send(bytes)
  }

  /// Much of one thing.
  func flood(_ random: inout Random) {
    var bytes: [UInt8] = []
    switch random.below(4) {
    case _ where speaksHTTP: bytes = HostileRequest.flood(&random)
    case 0:
      for _ in 0..<40 {
        Frame.keepalive(respond: true, position: 0, data: random.bytes(1000)).encode(into: &bytes)
      }
    case 1:  // requests that never become whole
      for _ in 0..<12 {
        Frame.request(
          someID(&random), random.pick(RequestKind.allCases), initialRequest: 1,
          Payload(metadata: streamName(&random), data: [UInt8](repeating: 1, count: 3000)), follows: true,
          isComplete: false
        ).encode(into: &bytes)
      }
    case 2:  // subscribe, and cancel
      for _ in 0..<60 {
        let id = someID(&random)
        subscription(id, &random).encode(into: &bytes)
        if random.chance(60) { Frame.cancel(id).encode(into: &bytes) }
      }
    default:
      for _ in 0..<60 {
        Frame.payload(
          someID(&random), Payload(data: content(&random)), follows: random.chance(10),
          isComplete: random.chance(3),
          isNext: true
        ).encode(into: &bytes)
      }
    }
    if reusesIDs { bytes = requestsWithFewIDs(60, &random) }
    Report.shared.say("\(name) floods with \(bytes.count) bytes")
    send(bytes)
  }

  /// Subscriptions to any streams, each cancelled before its id is used again.
  private func requestsWithFewIDs(_ count: Int, _ random: inout Random) -> [UInt8] {
    var bytes: [UInt8] = []
    for _ in 0..<count {
      let id = UInt32(1 + 2 * random.below(4))
      if openIDs.remove(id) != nil { Frame.cancel(StreamID(id)).encode(into: &bytes) }
      guard random.chance(80) else { continue }
      openIDs.insert(id)
      subscription(StreamID(id), &random).encode(into: &bytes)
      if random.chance(20) { Frame.requestN(StreamID(id), UInt32(random.pick([1, 3]))).encode(into: &bytes) }
    }
    return bytes
  }

  private func subscription(_ id: StreamID, _ random: inout Random) -> Frame {
    .request(
      id, .stream, initialRequest: UInt32(random.pick([1, 0x7fff_ffff])), Payload(metadata: streamName(&random)),
      follows: false, isComplete: false)
  }

  private func streamName(_ random: inout Random) -> [UInt8] {
    Array(random.pick(["s0", "s1", "s2", "p0", "p1", "$stats", "$streams", "none", ""]).utf8)
  }

  /// Values of nobody: what is made of them is in order for no one.
  private func content(_ random: inout Random) -> [UInt8] {
    Content("x", random.below(1 << 40), random.next() >> 2).bytes(count: random.below(2000))
  }

  private func frame(_ random: inout Random) -> Frame {
    let id = someID(&random)
    switch random.below(9) {
    case 0, 1:
      let lifetime: Duration = random.pick([.seconds(90), .milliseconds(1), .milliseconds(Int64(Int32.max)), .zero])
      return .setup(
        Setup(
          maximumLifetime: lifetime, honorsLease: random.chance(30),
          metadataMIMEType: random.pick([MetadataFormat.text, .text, .composite, .routing]).mimeType))
    case 2, 3, 4:
      let kind = random.pick(RequestKind.allCases)
      let options = ["", #"{"from":"new"}"#, #"{"from":1}"#, #"{"from":"-1d","on_lag":"fail","ids":false}"#, "{"]
      let isPublishing = kind == .channel || kind == .fireAndForget
      return .request(
        id, kind, initialRequest: kind == .response ? 1 : UInt32(random.pick([0, 1, 7, 0x7fff_ffff])),
        Payload(
          metadata: streamName(&random), data: isPublishing ? content(&random) : Array(random.pick(options).utf8)),
        follows: random.chance(20), isComplete: kind == .channel && random.chance(20))
    case 5: return .requestN(id, UInt32(random.pick([0, 1, 3, 0x7fff_ffff])))
    case 6: return .cancel(id)
    case 7:
      return .payload(
        id, Payload(data: content(&random)), follows: random.chance(20), isComplete: random.chance(10),
        isNext: random.chance(90))
    default: return .keepalive(respond: random.chance(70), position: 0, data: random.bytes(random.below(100)))
    }
  }
}
