import CLinux
import Glibc
import StreamRuntime

/// What a broker of a fleet may send, as fast as the daemon takes it.
@safe final class BrokerFlood {
  static let name = "test"
  private static let information =
    #"{"config":{"subjects":["streamd.test.log.0.>"],"allow_direct":true,"retention":"limits","discard":"old","#
    + #""num_replicas":1,"republish":{"src":"streamd.test.log.0.>","dest":"streamd.test.tail.0.>"}},"#
    + #""state":{"first_seq":1,"last_seq":0}}"#

  /// Whole operations of the protocol.
  static let units: [(name: String, bytes: [UInt8])] = {
    func message(_ subject: String, _ headers: String = "", _ content: String = "") -> String {
      let (count, contentCount) = (headers.utf8.count, content.utf8.count)
      let sizes = headers.isEmpty ? "MSG \(subject) 1 " : "HMSG \(subject) 1 \(count) "
      return "\(sizes)\(count + contentCount)\r\n\(headers)\(content)\r\n"
    }
    func headers(_ lines: String) -> String { "NATS/1.0\r\n\(lines)\r\n\r\n" }
    func repeated(_ text: String, _ count: Int) -> String { String(repeating: text, count: count) }
    let tail = "streamd.test.tail.0.part"
    return [
      ("PING", "PING\r\n"), ("PONG", "PONG\r\n"), ("INFO", "INFO {}\r\n"),
      ("INFO, members", "INFO {\"a\":1\(repeated(",\"a\":1", 9000))}\r\n"),
      ("empty messages", message("a")), ("entries", message(tail, headers("Nats-Sequence: 6"), "x")),
      ("answers", message("streamd.test.answer.a.1", "NATS/1.0 503\r\n\r\n")),
      ("headers, line feeds", message("a", headers(repeated("\n", 8000)))),
      ("headers, fields", message("a", headers(repeated("a\r\n", 3000)))),
      ("a long subject", message(repeated("a.", 3900) + "a")), ("spaces", "MSG a\(repeated(" ", 8000))1 0\r\n\r\n"),
      ("large entries", message(tail, headers("Nats-Sequence: 6"), repeated("x", 1 << 20))),
    ].map { ("broker: " + $0, Array($1.utf8)) }
  }()

  private let listener: OwnedDescriptor
  private let broker: StreamdBroker
  private let connection: OwnedDescriptor

  init(_ program: String) throws {
    listener = try HTTPUpstream.listen()
    broker = try StreamdBroker(
      program,
      stream: """
        [cluster]
        name = "\(Self.name)"
        nats = ["nats://127.0.0.1:\(HTTPUpstream.port(of: listener.raw))"]
        shards = 1
        replicas = 1
        \(StreamdBroker.quiet)
        share = "fleet"
        """)
    let raw = accept(listener.raw, nil, nil)
    guard raw >= 0 else { throw SystemError("accept") }
    connection = OwnedDescriptor(raw)
    try Handshake.say(Array("INFO {\"headers\":true,\"max_payload\":1048576}\r\n".utf8), to: raw)
    try Handshake.hear(Array("PING\r\n".utf8), from: raw)
    try Handshake.say(Array("PONG\r\n".utf8), to: raw)
    // The question about the log, of which the second word is the subject of the answer.
    let text = String(decoding: try Handshake.hear(Array(" 0\r\n\r\n".utf8), from: raw), as: UTF8.self)
    let words = text.split(separator: "$JS.API.STREAM.INFO.").last?.split(whereSeparator: \.isWhitespace) ?? []
    guard words.count > 1 else { throw BenchError("streamd does not ask about its log") }
    let answer = "MSG \(words[1]) 0 \(Self.information.utf8.count)\r\n\(Self.information)\r\n"
    try Handshake.say(Array(answer.utf8), to: raw)
    _ = fcntl(raw, F_SETFL, O_NONBLOCK)
  }

  /// - Returns: nanoseconds of the daemon's processor time for each byte that it has taken.
  func cost(of unit: [UInt8], over seconds: Double) throws -> Double {
    let block = Array(repeatElement(unit, count: max(1, (256 << 10) / unit.count)).joined())
    var (unsent, byteCount) = (ArraySlice<UInt8>(), 0)
    var buffer = [UInt8](repeating: 0, count: 64 << 10)
    var owesPong = false
    let (start, before) = (monotonicSeconds(), try broker.process.processorSeconds())
    while monotonicSeconds() - start < seconds || !unsent.isEmpty {
      if unsent.isEmpty { unsent = (owesPong ? Array("PONG\r\n".utf8) : [])[...] + block }
      owesPong = false
      let sent = unsafe unsent.withUnsafeBytes {
        unsafe send(connection.raw, $0.baseAddress, $0.count, CInt(MSG_NOSIGNAL))
      }
      guard sent > 0 || errno == EAGAIN else { throw BenchError("streamd hung up on its broker") }
      if sent > 0 { (unsent, byteCount) = (unsent.dropFirst(sent), byteCount + sent) } else { usleep(50) }
      while case let count = unsafe recv(connection.raw, &buffer, buffer.count, 0), count > 0 { owesPong = true }
    }
    return (try broker.process.processorSeconds() - before) * 1e9 / Double(byteCount)
  }
}
