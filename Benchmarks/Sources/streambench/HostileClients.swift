import CLinux
import Glibc
import RSocket
import StreamRuntime

/// Hostile clients in an unprivileged process: floods of every kind of frame and of HTTP request, endless fragments and
/// bodies, half-closed sockets, silence, and closes at random bytes. The seed determines the actions of each client.
///
/// The process is this executable again, selected by its arguments, and runs until it or its parent ends.
final class HostileClients {
  static let argument = "--hostile-clients"
  static let count = 200
  /// The streams under attack; the last one does not exist.
  static let streams = [
    "b", "small", "block", "large", "keyed", "timer-0", "timer-1", "$stats", "$streams", "none",
  ]
  /// "nobody" on Debian; the user to which the limits per user apply. Not used where the process is not root's.
  private static let user: uid_t = 65534

  private let process: ServerProcess

  init(_ path: String, seed: UInt64) throws {
    process = try ServerProcess("/proc/self/exe") { _ in [Self.argument, path, "\(seed)"] }
  }

  static func run(_ path: String, seed: UInt64) throws -> Never {
    // The measurement concerns the daemon, not the scheduler: these clients use only spare processor time.
    setpriority(__priority_which_t(PRIO_PROCESS.rawValue), 0, 10)
    if geteuid() == 0 {
      guard setgroups(0, nil) == 0, setgid(gid_t(user)) == 0, setuid(user) == 0 else {
        throw SystemError("setuid")
      }
    }
    var clients = (0..<count).map { HostileClient(path, seed: seed &+ UInt64($0) &* 0x1_0000_0001) }
    var dice = Dice(state: seed)
    let parent = getppid()
    while getppid() == parent {
      for _ in 0..<16 { clients[dice.roll(clients.count)].act() }
      for index in clients.indices { clients[index].flush() }
      usleep(500)
    }
    exit(EX_OK)
  }
}

/// One client.
@safe private struct HostileClient {
  private enum Reading { case all, nothing }

  private let path: String
  private var dice: Dice
  private var socket: CInt = -1
  private var reading = Reading.all
  private var speaksHTTP = false
  private var unsent: [UInt8] = []
  /// The id of the last request.
  private var lastID: UInt32 = 0
  private let scratch = UnsafeMutableRawBufferPointer.allocate(byteCount: 64 << 10, alignment: 16)

  /// Maximum unsent bytes: more are not queued for a full socket.
  private static let unsentLimit = 256 << 10
  private static let mostFrames = 2048

  init(_ path: String, seed: UInt64) {
    self.path = path
    dice = Dice(state: seed)
  }

  // MARK: Actions

  mutating func act() {
    guard socket >= 0 else { return connect() }
    switch dice.roll(100) {
    case 0..<2: leave()
    case 2..<4: shutdown(socket, CInt(dice.roll(3)))
    case 4..<6: leave(after: flood())
    case 6..<12: reading = dice.roll(2) == 0 ? .nothing : .all
    case 12..<14: say(noise(1 + dice.roll(100)))
    case 14..<17: say(spoilt(flood()))
    // The first byte of a frame, or the beginning of a request, and no more for now.
    case 17..<20: say(speaksHTTP ? Array(request().prefix(1 + dice.roll(60))) : [0])
    case 20..<70: say(flood())
    default: break
    }
  }

  private mutating func connect() {
    guard let connected = try? UnixSocket.connect(to: path) else { return }
    socket = connected.release()
    (lastID, reading, unsent, speaksHTTP) = (0, .all, [], dice.roll(3) == 0)
    guard !speaksHTTP else { return greetInHTTP() }
    switch dice.roll(12) {
    case 0: break  // sends nothing, or no SETUP
    case 1: say(Array(StreamdBroker.encoded(StreamdBroker.setup).prefix(dice.roll(60))))
    default:
      let lifetime: Duration = [.milliseconds(300), .seconds(2), .seconds(90), .milliseconds(Int64(Int32.max))][
        dice.roll(4)]
      let setup = Setup(
        maximumLifetime: lifetime, honorsLease: dice.roll(8) == 0,
        metadataMIMEType: MetadataFormat.allCases[dice.roll(MetadataFormat.allCases.count)].mimeType)
      say(StreamdBroker.encoded(.setup(setup)))
      // Half of them first behave correctly.
      if dice.roll(2) == 0 { say(StreamdBroker.encoded(subscription())) }
    }
  }

  private mutating func greetInHTTP() {
    switch dice.roll(6) {
    case 0: break  // sends nothing, or no whole request
    case 1:  // an event stream that is never read
      say(request("GET", "/streams/\(stream())?as=sse"))
      reading = .nothing
    case 2: say(filteredRequest())
    case 3: say(largeEvent())
    default: say(requests())
    }
  }

  /// Closes the socket without notice, in the middle of any exchange.
  private mutating func leave(after bytes: [UInt8] = []) {
    if !bytes.isEmpty { say(Array(bytes.prefix(1 + dice.roll(bytes.count)))) }
    close(socket)
    socket = -1
  }

  /// Writes what the socket accepts, and reads if the client reads at all.
  mutating func flush() {
    guard socket >= 0 else { return }
    if !unsent.isEmpty {
      let count = unsafe send(socket, unsent, unsent.count, CInt(MSG_NOSIGNAL) | CInt(MSG_DONTWAIT))
      if count < 0, errno != EAGAIN { return leave() }
      unsent.removeFirst(max(0, count))
    }
    guard case .all = reading else { return }
    for _ in 0..<16 {
      let count = unsafe recv(socket, scratch.baseAddress, scratch.count, CInt(MSG_DONTWAIT))
      if count == 0 { return leave() }
      if count < 0 { return }
    }
  }

  private mutating func say(_ bytes: [UInt8]) {
    guard unsent.count < Self.unsentLimit else { return }
    unsent += bytes
  }

  // MARK: Messages

  private mutating func newID() -> StreamID {
    lastID &+= lastID == 0 ? 1 : 2
    return StreamID(lastID & 0x7fff_ffff)
  }

  /// An id that the client has used, or never will.
  private mutating func anyID() -> StreamID {
    StreamID(dice.roll(20) == 0 ? UInt32(dice.roll(1 << 31)) : UInt32(dice.roll(Int(lastID) + 1)) | 1)
  }

  private mutating func stream() -> String { HostileClients.streams[dice.roll(HostileClients.streams.count)] }

  private mutating func subscription() -> Frame {
    let credit = [1, 3, 0x7fff_ffff, UInt32(dice.roll(1000))][dice.roll(4)]
    let options: [String] = [
      "", #"{"from":"new"}"#, #"{"from":"latest","on_lag":"fail"}"#, #"{"from":1}"#, #"{"from":"-5m","ids":false}"#,
      "{\"from\":[[[[[[[[", String(repeating: "[", count: 4000), #"{"on_lag":"latest","from":"2026-01-01T00:00:00Z"}"#,
    ]
    let text = dice.roll(2) == 0 ? options[dice.roll(options.count)] : filter()
    return StreamdBroker.request(.stream, newID(), stream(), credit: credit, data: Array(text.utf8))
  }

  /// Options with a filter: laborious to read, to compare with, or to keep, because hardly another client has it.
  private mutating func filter() -> String {
    let begin = dice.roll(2) == 0 ? #""from":"state","# : ""
    let number = dice.roll(1 << 30)
    switch dice.roll(6) {
    case 0:
      return
        "{\(begin)\"where\":{\"/n\":{\"in\":[\((0..<1900).map { "\(number / 2000 + $0)" }.joined(separator: ","))]}}}"
    case 1: return "{\(begin)\"where\":{\((0..<500).map { "\"/n\($0)\":\(number)" }.joined(separator: ","))}}"
    case 2: return "{\(begin)\"where\":{\"/n\":{\"gt\":\(number)}}}"
    case 3: return "{\(begin)\"where\":{\"/id\":\"\(number)\"}}"
    case 4: return "{\(begin)\"where\":[\((0..<890).map { _ in "[[[{}]]]" }.joined(separator: ","))]}"
    default: return "{\(begin)\"where\":{\"\(String(repeating: "/~0", count: 2500))\":1}}"
    }
  }

  /// An event, most of which is a number or a string, to which filters refer, or an array.
  private mutating func event(_ count: Int) -> [UInt8] {
    let content = [
      "1" + String(repeating: "1", count: count), "\"" + String(repeating: "\\u0061", count: count / 6) + "\"",
      "[" + String(repeating: "[],", count: count / 3) + "1]",
    ][dice.roll(3)]
    return Array("{\"id\":\(dice.roll(100)),\"n\":\(content)}".utf8)
  }

  /// A POST of one event of up to 8 MB.
  private mutating func largeEvent() -> [UInt8] {
    let event = event(dice.roll(1 << (10 + dice.roll(14))))
    return request(
      "POST", "/streams/" + ["large", "keyed"][dice.roll(2)],
      "Content-Type: application/json\r\nContent-Length: \(event.count)\r\n") + event
  }

  /// A response of a stream's state, or of events that a filter lets pass, which is read or not.
  private mutating func filteredRequest() -> [UInt8] {
    let filter = ["%7B%22/n%22:%7B%22gt%22:\(dice.roll(1 << 30))%7D%7D", "%7B%22/id%22:\(dice.roll(200))%7D"][
      dice.roll(2)]
    let begin = ["state", "replay", "new"][dice.roll(3)]
    reading = dice.roll(2) == 0 ? .nothing : .all
    return request("GET", "/streams/\(["large", "keyed"][dice.roll(2)])?as=ndjson&from=\(begin)&where=\(filter)")
  }

  private func request(_ method: String, _ target: String, _ fields: String = "") -> [UInt8] {
    Array("\(method) \(target) HTTP/1.1\r\nHost: localhost\r\n\(fields)\r\n".utf8)
  }

  /// A request of any kind, which may be the connection's last.
  private mutating func request() -> [UInt8] {
    let target = "/streams/" + stream()
    switch dice.roll(12) {
    case 0: return request("GET", "/metrics")
    case 1: return request("GET", "/metrics", "Accept: application/openmetrics-text\r\n")
    case 2: return request("GET", "/")
    case 3: return request("GET", target + "?wait=\(dice.roll(60))s")
    case 4: return request("GET", target + "?as=" + ["sse", "ndjson", "json-seq", "raw"][dice.roll(4)] + "&ids=1")
    case 5: return request("GET", "/streams/timer-0,timer-1,b,small?as=sse", "Last-Event-ID: 1,2,3,4\r\n")
    case 6: return request("GET", "/streams/" + String(repeating: "a", count: dice.roll(9000)))
    case 7: return request("HEAD", target, String(repeating: "X-Filler: \(dice.roll(100))\r\n", count: dice.roll(120)))
    case 8:
      let key = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
      return request("GET", "/rsocket", key + "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n") + noise(dice.roll(200))
    case 9: return post()
    case 10: return request("GET", Self.laboriousTarget)
    default: return request("GET", target)
    }
  }

  /// Many streams, and a filter with many pointers of many steps.
  private static let laboriousTarget: String = {
    let shared = String(repeating: "/a", count: 100)
    let conditions = (0..<14).map { "%22\(shared)/\($0)%22:1" }.joined(separator: ",")
    return "/streams/\(HostileClients.streams.dropLast().joined(separator: ","))?as=sse&where=%7B\(conditions)%7D"
  }()

  /// A POST with a body in chunks, which may lack its end.
  private mutating func post() -> [UInt8] {
    let name = ["small", "block"][dice.roll(2)]
    var bytes = request(
      "POST", "/streams/\(name)",
      "Transfer-Encoding: chunked\r\n" + (dice.roll(2) == 0 ? "Content-Type: application/x-ndjson\r\n" : ""))
    for _ in 0..<dice.roll(100) where bytes.count < Self.unsentLimit {
      let line = [UInt8](repeating: UInt8(ascii: "1"), count: 1 << dice.roll(14)) + [UInt8(ascii: "\n")]
      bytes += Array((String(line.count, radix: 16) + "\r\n").utf8) + line + Array("\r\n".utf8)
    }
    return dice.roll(3) == 0 ? bytes : bytes + Array("0\r\n\r\n".utf8)
  }

  /// One kind of request many times at once; or, a third of the times, requests of any kind.
  private mutating func requests() -> [UInt8] {
    let one = request()
    let count = 1 + dice.roll(1 << dice.roll(12)) % Self.mostFrames
    let isMixed = dice.roll(3) == 0
    var bytes: [UInt8] = []
    for _ in 0..<count where bytes.count < Self.unsentLimit { bytes += isMixed ? request() : one }
    return bytes
  }

  /// Many frames of one or two kinds, or many requests.
  private mutating func flood() -> [UInt8] {
    guard !speaksHTTP else { return requests() }
    let kind = dice.roll(12)
    let frames = 1 + dice.roll(1 << dice.roll(12)) % Self.mostFrames
    var bytes: [UInt8] = []
    for _ in 0..<frames where bytes.count < Self.unsentLimit {
      switch kind {
      case 0: subscription().encode(into: &bytes)
      case 1:
        subscription().encode(into: &bytes)
        Frame.cancel(StreamID(lastID & 0x7fff_ffff)).encode(into: &bytes)
      case 2: Frame.requestN(anyID(), UInt32(dice.roll(4)) &* 0x2fff_ffff).encode(into: &bytes)
      case 3: Frame.cancel(anyID()).encode(into: &bytes)
      case 4: StreamdBroker.request(.response, newID(), stream(), credit: 1).encode(into: &bytes)
      case 5:
        Frame.keepalive(respond: dice.roll(4) > 0, position: 0, data: noise(1 << dice.roll(16))).encode(into: &bytes)
      case 6: fragments(into: &bytes)
      case 7:
        StreamdBroker.request(
          .fireAndForget, newID(), stream(), credit: 0, data: [UInt8](repeating: 7, count: 1 << dice.roll(18))
        ).encode(into: &bytes)
      case 8: publication(into: &bytes)
      case 9:
        let event = event(dice.roll(1_000_000))
        StreamdBroker.request(.fireAndForget, newID(), "keyed", credit: 0, data: event).encode(into: &bytes)
      case 10: Frame.metadataPush(noise(dice.roll(300))).encode(into: &bytes)
      default:
        Frame.ext(anyID(), type: UInt32(dice.roll(100)), isIgnorable: dice.roll(50) > 0, hasMetadata: false, body: [])
          .encode(into: &bytes)
      }
    }
    return bytes
  }

  /// The beginning of a fragmented request, and some of the rest.
  private mutating func fragments(into bytes: inout [UInt8]) {
    let id = newID()
    let name = stream()
    let route = [UInt8(name.utf8.count)] + Array(name.utf8)
    Frame.request(
      id, RequestKind.allCases[dice.roll(RequestKind.allCases.count)], initialRequest: 1,
      Payload(metadata: route, data: noise(dice.roll(100))), follows: true, isComplete: false
    ).encode(into: &bytes)
    for _ in 0..<dice.roll(200) {
      let part = Payload(data: [UInt8](repeating: 1, count: 1 + dice.roll(1 << dice.roll(12))))
      Frame.payload(id, part, follows: dice.roll(100) > 0, isComplete: false, isNext: true).encode(into: &bytes)
    }
  }

  /// A channel with values without demand, the first of one byte and the others of any size.
  private mutating func publication(into bytes: inout [UInt8]) {
    let id = newID()
    let name = ["small", "block"][dice.roll(2)]
    StreamdBroker.request(.channel, id, name, credit: 1, data: [1]).encode(into: &bytes)
    let size = 1 << dice.roll(18)
    for _ in 0..<dice.roll(130) where bytes.count < Self.unsentLimit {
      let value = Payload(data: [UInt8](repeating: 2, count: size))
      Frame.payload(id, value, follows: false, isComplete: dice.roll(50) == 0, isNext: true).encode(into: &bytes)
    }
  }

  private mutating func noise(_ count: Int) -> [UInt8] { (0..<count).map { _ in UInt8(dice.roll(256)) } }

  /// The bytes with a few bits changed.
  private mutating func spoilt(_ bytes: [UInt8]) -> [UInt8] {
    var bytes = bytes
    for _ in 0...dice.roll(4) where !bytes.isEmpty {
      bytes[dice.roll(min(bytes.count, 64))] ^= UInt8(1 << dice.roll(8))
    }
    return bytes
  }
}
