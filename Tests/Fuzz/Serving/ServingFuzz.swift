// A whole server with up to four clients, on one thread, driven by an input.
//
// An input is a list of steps: a byte whose low four bits select the action and whose next two the client, then the
// step's own bytes. Steps send frames of several requests or requests over HTTP, complete, partial or damaged, close
// sockets in either direction, publish, let time pass, turn the loop, and hand every connection over to another server,
// whose configuration may be different, and whose state may be damaged on the way.
//
// Oracles: no trap; every frame that a client gets is well formed; the events of a request have rising ids and never
// exceed its credit; an HTTP client gets responses; when all clients have left, the server counts no connection, no
// subscriber and no publisher.

import Events
import Glibc
import RSocket
import Reactive
import ReplayLog

@testable import StreamRuntime
@testable import StreamServer

/// Reads one input; a broken invariant traps.
func fuzzServing(_ input: UnsafeRawBufferPointer) {
  let world = World()
  var steps = Steps(input)
  while let step = steps.next(), world.stepCount < 400 { world.perform(step, &steps) }
  world.end()
}

/// The bytes of an input, one after the other; zeroes behind its end.
private struct Steps {
  private var rest: UnsafeRawBufferPointer
  init(_ bytes: UnsafeRawBufferPointer) { rest = bytes }

  mutating func next() -> UInt8? {
    guard let byte = rest.first else { return nil }
    rest = UnsafeRawBufferPointer(rebasing: rest.dropFirst())
    return byte
  }

  mutating func byte() -> UInt8 { next() ?? 0 }
  mutating func number() -> Int { Int(byte()) << 8 | Int(byte()) }

  mutating func take(_ count: Int) -> [UInt8] {
    let taken = Array(rest.prefix(count))
    rest = UnsafeRawBufferPointer(rebasing: rest.dropFirst(taken.count))
    return taken
  }
}

private let streamNames = ["drop", "block", "publish", "publish-block", "$stats", "$streams", "none", "$config"]
/// Instead of the last four names, in a request with the highest bit of its size.
private let patterns = ["*", "p*", "*k", "none*"]

private final class World {
  private var server: StreamServer
  private var clients: [Client?] = [nil, nil, nil, nil]
  private(set) var stepCount = 0
  /// Servers whose connections were handed over: they hold the descriptors.
  private var formerServers: [StreamServer] = []

  /// The sources of the first two streams.
  private let sources = [PassthroughSubject<EventBatch, StreamFailure>(), .init()]

  init() { server = Self.makeServer(choices: 0, isRestoring: false, sources) }

  /// - Parameter choices: bit 0: small buffers; bit 1: only another user may read and write; bit 2: fewer streams; bit 3: another
  ///   token; bit 4: only JSON may be published.
  private static func makeServer(
    choices: UInt8, isRestoring: Bool, _ sources: [PassthroughSubject<EventBatch, StreamFailure>]
  ) -> StreamServer {
    let limits = ServerLimits(workers: 1, connections: 8, requestsPerConnection: 4, requestBytes: 4096)
    guard let server = try? StreamServer(limits: limits, restores: isRestoring) else { fatalError("no server") }
    server.setTokens([ClientToken(name: "a", secret: choices & 8 != 0 ? "other" : "token")])
    let isSmall = choices & 1 != 0
    let access = choices & 2 != 0 ? AccessRules([.user(4_000_000_000), .token("a")]) : AccessRules()
    for name in streamNames.prefix(choices & 4 != 0 ? 1 : 4) {
      let blocks = name.hasSuffix("block")
      var configuration = StreamConfiguration(
        name: name, replay: 3, limits: EventLog.Limits(events: isSmall ? 2 : 8, bytes: isSmall ? 4096 : 16384),
        start: .always, overflow: blocks ? .block(timeout: .milliseconds(3)) : .drop, read: access, write: access)
      configuration.requiresJSON = choices & 16 != 0
      configuration.isMapped = !blocks
      if name.hasPrefix("publish") {
        let publishSource = PublishSource()
        try? server.add(
          configuration, source: publishSource.setFailureType(to: StreamFailure.self), publishSource: publishSource)
      } else {
        try? server.add(configuration, source: sources[name == "drop" ? 0 : 1])
      }
    }
    return server
  }

  // MARK: Steps

  func perform(_ step: UInt8, _ steps: inout Steps) {
    stepCount += 1
    let index = Int(step >> 4 & 3)
    switch step & 15 {
    case 0: connect(index)
    case 1: clients[index]?.sendSetup(steps.byte())
    case 2: clients[index]?.sendRequest(steps.byte(), steps.byte(), size: steps.number())
    case 3: clients[index]?.sendRequestN(steps.byte(), steps.byte())
    case 4: clients[index]?.send(.cancel(StreamID(UInt32(steps.byte()))))
    case 5: clients[index]?.sendPayload(steps.byte(), steps.byte(), size: steps.number())
    case 6:
      let choices = steps.byte()
      if choices & 0x80 != 0 {
        clients[index]?.sendHTTP(choices, steps.byte(), size: steps.number())
      } else {
        clients[index]?.send(.keepalive(respond: true, position: 0, data: steps.take(Int(choices))))
      }
    case 7: clients[index]?.sendRaw(steps.take(Int(steps.byte())))
    case 8: clients[index]?.shutDown(CInt(steps.byte() % 3))
    case 9:
      clients[index]?.receive()
      clients[index] = nil
    case 10: clients[index]?.receive()
    case 11: turn(Int(steps.byte() & 7) + 1)
    case 12: append(steps.byte(), size: steps.number())
    case 13: clients[index]?.repeatLast(Int(steps.byte()))
    case 14: handOver(steps.byte(), &steps)
    default:
      usleep(1000 * UInt32(1 + steps.byte() & 3))
      turn(1)
    }
  }

  private func connect(_ index: Int) {
    clients[index]?.receive()
    clients[index] = nil
    var pair: [CInt] = [-1, -1]
    let kind = CInt(SOCK_STREAM.rawValue) | CInt(SOCK_NONBLOCK.rawValue) | CInt(SOCK_CLOEXEC.rawValue)
    guard socketpair(AF_UNIX, kind, 0, &pair) == 0 else { return }
    clients[index] = Client(pair[0])
    // A user with two clients, one with one, and a client without credentials, as over TCP.
    let credentials = index == 3 ? nil : PeerCredentials(process: 1, user: UInt32(index / 2), group: 0)
    server.accept(OwnedDescriptor(pair[1]), credentials)
  }

  private func turn(_ count: Int) {
    for _ in 0..<count { server.loops[0].runOneTurn() }
  }

  private func append(_ choice: UInt8, size: Int) {
    guard let stream = server.streams[streamNames[Int(choice & 1)]] else { return }
    let limit = stream.configuration.limits.maximumEventBytes
    let event = [UInt8](repeating: choice, count: min(size, limit))
    sources[Int(choice & 1)].send(EventBatch(repeatElement(event, count: 1 + Int(choice >> 4))))
  }

  private func handOver(_ choices: UInt8, _ steps: inout Steps) {
    let saved = Locked<SavedConnections?>(nil)
    server.save { connections in saved.withLock { $0 = connections } }
    for _ in 0..<8 where saved.withLock({ $0 == nil }) { turn(1) }
    guard let connections = saved.withLock({ $0 }) else { preconditionFailure("a handover that does not end") }
    var state = connections.state(ofFirst: connections.descriptors.count)
    let isSpoilt = choices & 8 != 0 && !state.isEmpty
    if isSpoilt {
      for _ in 0...choices >> 5 { state[steps.number() % state.count] = steps.byte() }
      // With a valid checksum, so that the fields are read; otherwise only the checksum is tested.
      if choices & 16 != 0 { state = SavedState.seal(Array(state[SavedState.headerBytes...]), as: .connections) }
    }
    // As in the next process: other descriptors for the same sockets.
    let descriptors = connections.descriptors.map { fcntl($0, F_DUPFD_CLOEXEC, 0) }
    let next = Self.makeServer(choices: choices, isRestoring: true, sources)
    let restored = try? SavedConnections(state: state, descriptors)
    precondition(restored != nil || isSpoilt, "a state is refused that was just written")
    if let restored {
      let again = try? SavedConnections(state: restored.state(ofFirst: restored.count))
      precondition(
        again?.state(ofFirst: restored.count) == restored.state(ofFirst: restored.count), "written otherwise")
    }
    if restored == nil { for descriptor in descriptors { close(descriptor) } }
    if isSpoilt {
      for client in clients {
        client?.isExact = false
        client?.isSpoilt = true
      }
    }
    formerServers.append(server)
    server = next
    if let restored {
      let isRestored = Locked(false)
      next.restore(restored) { isRestored.withLock { $0 = true } }
      for _ in 0..<8 where !isRestored.withLock({ $0 }) { turn(1) }
      precondition(isRestored.withLock { $0 }, "a restore that does not end")
    }
    next.finishRestore()
    turn(1)
    // The sockets of the previous server are closed with it, like those of a process.
    let former = formerServers.removeFirst()
    Self.stop(former)
  }

  func end() {
    for client in clients { client?.receive() }
    clients = [nil, nil, nil, nil]
    // Deferred work and the log's own calls come first.
    for _ in 0..<200 {
      turn(1)
      if isEmpty { break }
    }
    precondition(isEmpty, "connections, subscribers or publishers are left: \(server.statistics)")
    Self.stop(server)
  }

  private static func stop(_ server: StreamServer) {
    server.stop {}
    for _ in 0..<4 { server.loops[0].runOneTurn() }
    server.loops[0].endOfTurn = nil  // as at the end of the loop's thread: releases what it retains
  }

  private var isEmpty: Bool {
    let statistics = server.statistics
    return statistics.connections == 0 && statistics.subscribers == 0 && statistics.publishers == 0
  }
}

/// The test's end of a connection.
private final class Client {
  private struct Request {
    var credit: UInt64
    var lastID: UInt64 = 0
    /// The number was used before: events of two requests may be on their way.
    var isReused = false
  }

  private let socket: CInt
  private var lastSent: [UInt8] = []
  private var input: [UInt8] = []
  private var requests: [StreamID: Request] = [:]
  /// Its saved state was damaged.
  var isSpoilt = false
  private var hasSent = false
  /// Its first bytes were a request; frames are only sent in messages.
  private var speaksHTTP = false
  private var lastFrame: [UInt8] = []
  /// Whether its output was never damaged, so that credit can be counted.
  var isExact = true

  init(_ socket: CInt) { self.socket = socket }
  deinit { close(socket) }

  func send(_ frame: Frame) {
    var bytes: [UInt8] = []
    frame.encode(into: &bytes)
    // Credit counts when the frame may have arrived; a frame that did not is cut, and nothing after it is read.
    switch frame {
    case .request(let id, _, let credit, let payload, _, _):
      let former = requests[id]
      // The events of a pattern are those of several streams.
      let isOfMany = payload.metadata?.contains(UInt8(ascii: "*")) == true
      requests[id] = Request(credit: (former?.credit ?? 0) + UInt64(credit), isReused: former != nil || isOfMany)
    case .requestN(let id, let credit): requests[id]?.credit += UInt64(credit)
    default: break
    }
    (lastSent, lastFrame) = (bytes, bytes)
    if !speaksHTTP { write(bytes) }
  }

  func sendRaw(_ bytes: [UInt8]) {
    isExact = false
    lastSent = bytes
    write(bytes)
  }

  /// A request over HTTP, or a message in a WebSocket; the lowest bits of the size say how much of it.
  func sendHTTP(_ choices: UInt8, _ detail: UInt8, size: Int) {
    isExact = false
    let name = size & 0x8000 != 0 && detail & 4 != 0 ? patterns[Int(detail & 3)] : streamNames[Int(detail & 7)]
    let fields = "Host: a\r\n" + (detail & 0x40 != 0 ? "If-None-Match: *\r\n" : "")
    func head(_ line: String, _ more: String = "") -> [UInt8] {
      Array("\(line) HTTP/1.\(detail >> 7 ^ 1)\r\n\(fields)\(more)\r\n".utf8)
    }
    let body = [UInt8](repeating: detail & 0x20 != 0 ? 10 : 65, count: size >> 4 & 0x7FF)
    let queries = [
      "", "?as=sse", "?as=ndjson&ids=1", "?as=raw", "?wait=20ms", "?as=sse&count=2",
      "?as=ndjson&ids=1&follow=0&marker=1&where=%7B%22%22:%7B%22ge%22:1%7D%7D",
      "?as=sse&on_lag=fail&from=new",
    ]
    var bytes: [UInt8]
    switch choices >> 3 & 15 {
    case 0...4: bytes = head("GET /streams/\(name)\(queries[Int(choices & 7)])")
    case 5: bytes = head("HEAD /streams/\(name)\(queries[Int(choices & 7)])")
    case 6: bytes = head("GET /streams/drop,block,$stats?as=sse", detail & 8 != 0 ? "Last-Event-ID: 1,2,3\r\n" : "")
    case 7, 8:
      let type = detail & 8 != 0 ? "Content-Type: application/x-ndjson\r\n" : ""
      bytes = head("POST /streams/\(name)", type + "Content-Length: \(body.count)\r\n") + body
    case 9, 10:
      let type = detail & 8 != 0 ? "Content-Type: application/x-ndjson\r\n" : "Expect: 100-continue\r\n"
      bytes = head("POST /streams/\(name)", type + "Transfer-Encoding: chunked\r\n")
      bytes += Array("\(String(body.count + 1, radix: 16))\r\nx".utf8) + body + Array("\r\n0\r\n\r\n".utf8)
    case 11: bytes = head("GET \(["/healthz", "/metrics", "/", "/stats"][Int(choices & 3)])")
    case 12:
      let targets = [
        "rsocket", "streams/\(name)", "streams/\(name)?ids=1&marker=1", "streams/\(name)?publish=1",
        "streams/drop,block,$stats?ids=1", "streams/*?ids=1", "streams/\(name)?count=2&from=new",
        "streams/publish?publish=1",
      ]
      bytes = head(
        "GET /\(targets[Int(choices & 7)])",
        "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
          + "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n")
    default:
      // The last frame as a message, a fragment of one, or a control frame.
      let payload = choices & 4 != 0 ? Array(body.prefix(125)) : Array(lastFrame.dropFirst(3).prefix(125))
      let opcode: [UInt8] = [0x82, 0x02, 0x80, 0x89, 0x88, 0x8A, 0x82, 0x81]
      bytes = [opcode[Int(choices & 7)], 0x80 | UInt8(payload.count), 0, 0, 0, 0] + payload
    }
    if size & 15 != 0 { bytes = Array(bytes.prefix(bytes.count * (size & 15) / 15)) }
    if !hasSent { speaksHTTP = bytes.first.map { $0 < 0x80 } ?? false }
    lastSent = bytes
    write(bytes)
  }

  func repeatLast(_ count: Int) {
    isExact = false
    for _ in 0..<count { write(lastSent) }
  }

  private func write(_ bytes: [UInt8]) {
    if !bytes.isEmpty { hasSent = true }
    let count = Glibc.send(socket, bytes, bytes.count, CInt(MSG_NOSIGNAL))
    if count != bytes.count { isExact = false }
  }

  func sendSetup(_ choices: UInt8) {
    let lifetime: [Duration] = [.seconds(90), .milliseconds(1), .milliseconds(Int64(Int32.max)), .zero]
    send(
      .setup(
        Setup(
          maximumLifetime: lifetime[Int(choices & 3)], honorsLease: choices & 4 != 0,
          metadataMIMEType: (choices & 8 == 0 ? MetadataFormat.text : .composite).mimeType,
          payload: Payload(
            metadata: choices & 8 == 0
              ? nil : MetadataFormat.metadata(bearerToken: Array("token".utf8.prefix(Int(choices >> 4))))
          ))))
  }

  func sendRequest(_ choices: UInt8, _ id: UInt8, size: Int) {
    let kind = RequestKind.allCases[Int(choices & 3)]
    let index = Int(choices >> 2 & 7)
    let name = size & 0x8000 != 0 && index >= 4 ? patterns[index - 4] : streamNames[index]
    let options = [
      "", #"{"from":"new"}"#, #"{"from":1}"#, #"{"from":"-1d","on_lag":"fail","ids":false}"#, #"{"from":"latest"}"#,
      #"{"where":{"":{"ge":1}},"marker":true,"gaps":true}"#, #"{"where":{"/a":"x"},"on_lag":"latest"}"#,
      #"{"marker":true}"#, #"{"map":true}"#, #"{"map":true,"position":1}"#,
      #"{"names":true,"marker":true,"from":1}"#, #"{"names":true,"where":{"":{"ge":1}}}"#, #"{"names":true}"#,
    ]
    let isPublishing = kind == .channel || kind == .fireAndForget
    let data =
      isPublishing
      ? [UInt8](repeating: id, count: size & 2047) : Array(options[(size >> 11) % options.count].utf8)
    let payload = Payload(metadata: Array(name.utf8), data: data)
    send(
      .request(
        StreamID(UInt32(id)), kind, initialRequest: kind == .response ? 1 : UInt32(choices >> 5),
        payload, follows: size & 0x400 != 0 && isPublishing, isComplete: size & 0x800 != 0 && kind == .channel))
  }

  func sendRequestN(_ id: UInt8, _ count: UInt8) {
    send(.requestN(StreamID(UInt32(id)), count == 255 ? 0x7fff_ffff : UInt32(count)))
  }

  func sendPayload(_ id: UInt8, _ choices: UInt8, size: Int) {
    send(
      .payload(
        StreamID(UInt32(id)), Payload(data: [UInt8](repeating: id, count: size & 4095)), follows: choices & 1 != 0,
        isComplete: choices & 2 != 0, isNext: choices & 4 == 0))
  }

  func shutDown(_ how: CInt) {
    isExact = false
    shutdown(socket, how)
  }

  /// Reads and checks the received frames.
  func receive() {
    var buffer = [UInt8](repeating: 0, count: 64 << 10)
    while true {
      let count = recv(socket, &buffer, buffer.count, 0)
      guard count > 0 else { break }
      input += buffer[..<count]
    }
    if speaksHTTP {
      // A connection over the limit gets ERROR, which begins with zeroes.
      let isResponse = input.first == 0 || input.prefix(9).elementsEqual("HTTP/1.1 ".utf8.prefix(input.count))
      precondition(isResponse || isSpoilt, "no response: \(input.prefix(100))")
      input = Array(input.prefix(9))
      return
    }
    var offset = 0
    while input.count - offset >= 3 {
      let count = Int(input[offset]) << 16 | Int(input[offset + 1]) << 8 | Int(input[offset + 2])
      guard input.count - offset >= 3 + count else { break }
      let frame = input.withUnsafeBytes {
        try? Frame.decode(UnsafeRawBufferPointer(rebasing: $0[offset + 3..<offset + 3 + count]))
      }
      guard let frame else { preconditionFailure("a frame of the server that cannot be read") }
      judge(frame)
      offset += 3 + count
    }
    input.removeFirst(offset)
  }

  private func judge(_ frame: Frame) {
    guard isExact, case .payload(let id, let payload, let follows, _, isNext: true) = frame else { return }
    guard var request = requests[id] else { preconditionFailure("an event for request \(id), which there never was") }
    if let metadata = payload.metadata, metadata.count == 16 {
      let event = metadata.prefix(8).reduce(0) { $0 << 8 | UInt64($1) }
      precondition(event > request.lastID || request.isReused, "event \(event) after \(request.lastID)")
      request.lastID = event
    }
    if !follows {
      precondition(request.credit > 0, "an event beyond the credit of request \(id)")
      request.credit -= 1
    }
    requests[id] = request
  }
}
