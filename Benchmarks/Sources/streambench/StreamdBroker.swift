import CLinux
import Glibc
import RSocket
import StreamRuntime

/// The daemon with a configuration of one stream to which clients publish; a notify socket reports when it is ready.
final class StreamdBroker: Broker {
  let name = "streamd"
  let process: ServerProcess
  let shape: EventShape
  let secondsToReady: Double
  var path: String { process.folder + "/s" }

  /// A stream whose buffer exceeds the publisher's lead.
  static let stream = """
    [streams.b]
    publish = true
    buffer = { events = 262144, bytes = "64MiB" }
    """
  /// A stream without events.
  static let quiet = """
    [streams.b]
    timer = { every = "1d" }
    """

  /// The size of each event that is published; at least `EventShape.dataByteCount`.
  private let dataByteCount: Int

  /// - Parameter stream: the configuration of a stream `b`.
  init(
    _ program: String, stream: String = StreamdBroker.stream, dataByteCount: Int = EventShape.dataByteCount
  ) throws {
    self.dataByteCount = dataByteCount
    var notify: CInt = -1
    defer { close(notify) }
    var start = 0.0
    process = try ServerProcess(program, environment: { ["NOTIFY_SOCKET=\($0)/notify"] }) { folder in
      notify = Self.notifySocket(folder + "/notify")
      if let file = unsafe fopen(folder + "/streamd.toml", "w") {
        unsafe fputs("[server]\nsocket = \"\(folder)/s\"\nmax_lifetime = \"1h\"\n\(stream)\n", unsafe file)
        unsafe fclose(file)
      }
      start = monotonicSeconds()
      return ["--config", folder + "/streamd.toml"]
    }
    try Self.waitUntilReady(notify)
    secondsToReady = monotonicSeconds() - start
    let header = PayloadFrame.headerByteCount
    let stamp = 16
    var request = [UInt8](repeating: 0, count: header + dataByteCount)
    unsafe request.withUnsafeMutableBytes { bytes in
      guard let base = bytes.baseAddress else { return }
      _ = unsafe PayloadFrame.writeHeader(
        StreamID(1), .next, metadataByteCount: nil, dataByteCount: dataByteCount, at: base)
    }
    shape = EventShape(
      byteCount: header + PayloadFrame.metadataLengthByteCount + stamp + dataByteCount,
      dataOffset: header + PayloadFrame.metadataLengthByteCount + stamp,
      idOffset: header + PayloadFrame.metadataLengthByteCount, request: request, requestDataOffset: header)
  }

  func subscribe() throws -> CInt { try subscribe(credit: Credit.unlimited, options: #"{"from":"new"}"#) }

  /// - Parameter credit: at least 1.
  func subscribe(to stream: String = "b", credit: UInt32, options: String) throws -> CInt {
    let raw = try Handshake.connect(to: path)
    try Handshake.say(Self.greeting(Self.subscription(to: stream, credit: credit, options: options)), to: raw)
    try Self.awaitEcho(raw)
    return raw
  }

  /// A subscriber to which events may already be on their way.
  func subscribe(since span: String) throws -> CInt {
    let raw = try Handshake.connect(to: path)
    let request = Self.subscription(credit: Credit.unlimited, options: "{\"from\":\"\(span)\"}")
    try Handshake.say(Self.encoded(Self.setup) + Self.encoded(request), to: raw)
    return raw
  }

  /// The newest event of a stream, or the last of that many from the newest on; none may exceed a frame.
  func ask(_ stream: String, events: Int = 1) throws -> [UInt8] {
    let raw = try Handshake.connect(to: path)
    defer { close(raw) }
    let request = Self.request(
      .stream, StreamID(1), stream, credit: UInt32(events), data: Array(#"{"from":"latest"}"#.utf8))
    try Handshake.say(Self.encoded(Self.setup) + Self.encoded(request), to: raw)
    var data: [UInt8] = []
    for _ in 0..<events {
      let head = try Handshake.hear(3, from: raw)
      let body = try Handshake.hear(Int(head[0]) << 16 | Int(head[1]) << 8 | Int(head[2]), from: raw)
      guard case .payload(_, let payload, _, _, _) = try unsafe body.withUnsafeBytes({ try unsafe Frame.decode($0) })
      else {
        throw BenchError("streamd does not tell \(stream)")
      }
      data = payload.data
    }
    return data
  }

  // MARK: Publishing

  // The request for a channel carries the first event.
  let eventsOnConnecting = 1
  let initialCredit = 0
  private var unread: [UInt8] = []

  func connectPublisher() throws -> CInt {
    unread = []
    let raw = try Handshake.connect(to: path)
    var bytes = Self.encoded(Self.setup)
    let first = [UInt8](repeating: 0, count: dataByteCount)
    bytes += Self.encoded(Self.request(.channel, StreamID(1), "b", credit: 1, data: first))
    try Handshake.say(bytes, to: raw)
    return raw
  }

  func credit(from bytes: UnsafeRawBufferPointer) throws -> Int {
    unsafe unread += bytes
    var credit = 0
    while unread.count >= 3 {
      let count = Int(unread[0]) << 16 | Int(unread[1]) << 8 | Int(unread[2])
      guard unread.count >= 3 + count else { break }
      let frame = try unsafe unread.withUnsafeBytes {
        try unsafe Frame.decode(UnsafeRawBufferPointer(rebasing: $0[3..<3 + count]))
      }
      unread.removeFirst(3 + count)
      switch frame {
      case .requestN(_, let count): credit += Int(count)
      case .error(_, _, let message): throw BenchError("streamd refuses the publisher: \(message)")
      default: break
      }
    }
    return credit
  }

  // MARK: Connections

  static let setup = Frame.setup(Setup(maximumLifetime: .seconds(3600)))
  private static let echo = encoded(.keepalive(respond: false, position: 0, data: []))

  /// SETUP, an optional request, then a KEEPALIVE whose echo proves that everything was processed.
  static func greeting(_ request: Frame? = nil) -> [UInt8] {
    encoded(setup) + (request.map(encoded) ?? []) + encoded(.keepalive(respond: true, position: 0, data: []))
  }

  static func awaitEcho(_ descriptor: CInt) throws {
    guard try Handshake.hear(echo.count, from: descriptor) == echo else {
      throw BenchError("streamd does not take the client")
    }
  }

  private static func subscription(to stream: String = "b", credit: UInt32, options: String) -> Frame {
    request(.stream, StreamID(1), stream, credit: credit, data: Array(options.utf8))
  }

  static func request(
    _ kind: RequestKind, _ id: StreamID, _ stream: String, credit: UInt32, data: [UInt8] = []
  ) -> Frame {
    let route = [UInt8(stream.utf8.count)] + Array(stream.utf8)
    return .request(
      id, kind, initialRequest: credit, Payload(metadata: route, data: data), follows: false, isComplete: false)
  }

  static func encoded(_ frame: Frame) -> [UInt8] {
    var bytes: [UInt8] = []
    frame.encode(into: &bytes)
    return bytes
  }

  private static func waitUntilReady(_ notify: CInt) throws {
    while true {
      var message = [UInt8](repeating: 0, count: 4096)
      let count = unsafe recv(notify, &message, message.count, 0)
      guard count > 0 else { throw SystemError("recv", "notify socket") }
      if message.prefix(count).starts(with: Array("READY=1".utf8)) { return }
    }
  }

  private static func notifySocket(_ path: String) -> CInt {
    let raw = socket(AF_UNIX, CInt(SOCK_DGRAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
    var address = sockaddr_un()
    address.sun_family = sa_family_t(AF_UNIX)
    unsafe withUnsafeMutableBytes(of: &address.sun_path) { unsafe $0.copyBytes(from: path.utf8) }
    _ = unsafe withUnsafePointer(to: &address) {
      unsafe $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
        unsafe bind(raw, $0, socklen_t(MemoryLayout<sockaddr_un>.size))
      }
    }
    var timeout = timeval(tv_sec: 10, tv_usec: 0)
    unsafe setsockopt(raw, SOL_SOCKET, SO_RCVTIMEO, &timeout, socklen_t(MemoryLayout<timeval>.size))
    return raw
  }
}
