import Glibc
import StreamRuntime

// The peers, each with a minimal client of its own protocol. They are configured to buffer without a limit for slow
// subscribers: the publisher limits its lead itself.

/// redis, pub/sub over a Unix socket.
final class RedisBroker: Broker {
  let name = "redis"
  let process: ServerProcess
  let shape: EventShape

  init(_ program: String) throws {
    process = try ServerProcess(program) { folder in
      [
        "--port", "0", "--unixsocket", folder + "/s", "--save", "", "--appendonly", "no", "--maxclients", "15000",
        "--client-output-buffer-limit", "pubsub 0 0 0", "--tcp-backlog", "4096",
      ]
    }
    let head = "*3\r\n$7\r\nmessage\r\n$1\r\nb\r\n$64\r\n"
    let request = "*3\r\n$7\r\nPUBLISH\r\n$1\r\nb\r\n$64\r\n"
    shape = EventShape(
      byteCount: head.utf8.count + EventShape.dataByteCount + 2, dataOffset: head.utf8.count,
      request: Array(request.utf8) + EventShape.data + Array("\r\n".utf8), requestDataOffset: request.utf8.count)
    try process.waitUntilItServes(connectPublisher)
  }

  func subscribe() throws -> CInt {
    let raw = try Handshake.connect(to: process.folder + "/s")
    try Handshake.say(Array("*2\r\n$9\r\nSUBSCRIBE\r\n$1\r\nb\r\n".utf8), to: raw)
    try Handshake.hear(Array("*3\r\n$9\r\nsubscribe\r\n$1\r\nb\r\n:1\r\n".utf8), from: raw)
    return raw
  }

  func connectPublisher() throws -> CInt { try Handshake.connect(to: process.folder + "/s") }
}

/// nats-server, core publish/subscribe over TCP, because it has no Unix sockets.
final class NatsBroker: Broker {
  let name = "nats"
  let process: ServerProcess
  let shape: EventShape
  private let port: UInt16

  /// - Parameter dataByteCount: of each event, at least `EventShape.dataByteCount`.
  init(_ program: String, dataByteCount: Int = EventShape.dataByteCount) throws {
    let port = try Handshake.reservePort()
    self.port = port
    let configuration = """
      listen: "127.0.0.1:\(port)"
      max_pending: 8GB
      write_deadline: "1h"
      ping_interval: "1h"
      """
    process = try ServerProcess(program, files: ["nats.conf": configuration]) { ["-c", $0 + "/nats.conf"] }
    let head = "MSG b 1 \(dataByteCount)\r\n"
    let request = "PUB b \(dataByteCount)\r\n"
    let data = [UInt8](repeating: UInt8(ascii: "x"), count: dataByteCount)
    shape = EventShape(
      byteCount: head.utf8.count + dataByteCount + 2, dataOffset: head.utf8.count,
      request: Array(request.utf8) + data + Array("\r\n".utf8), requestDataOffset: request.utf8.count)
    try process.waitUntilItServes(connectPublisher)
  }

  func subscribe() throws -> CInt { try connect(saying: "SUB b 1\r\n") }

  /// The server measures the round trip to each new client once, two seconds after its connection.
  func settle(_ subscribers: [CInt]) throws {
    for subscriber in subscribers {
      try Handshake.hear(Array("PING\r\n".utf8), from: subscriber)
      try Handshake.say(Array("PONG\r\n".utf8), to: subscriber)
    }
  }

  func connectPublisher() throws -> CInt { try connect(saying: "") }

  private func connect(saying words: String) throws -> CInt {
    let raw = try Handshake.connect(toPort: port)
    try Handshake.say(Array("CONNECT {\"verbose\":false,\"pedantic\":false}\r\n\(words)PING\r\n".utf8), to: raw)
    try Handshake.hear(Array("PONG\r\n".utf8), from: raw)
    return raw
  }
}

/// mosquitto, MQTT 3.1.1 at most once, over a Unix socket.
final class MosquittoBroker: Broker {
  let name = "mosquitto"
  let process: ServerProcess
  let shape: EventShape
  private var clients = 0

  init(_ program: String) throws {
    process = try ServerProcess(program, files: ["mosquitto.conf": ""]) { folder in
      let configuration = """
        listener 0 \(folder)/s
        allow_anonymous true
        max_queued_messages 0
        max_queued_bytes 0
        persistence false
        log_dest none
        user root

        """
      if let file = unsafe fopen(folder + "/mosquitto.conf", "w") {
        unsafe fputs(configuration, file)
        unsafe fclose(file)
      }
      return ["-c", folder + "/mosquitto.conf"]
    }
    let head: [UInt8] = [0x30, UInt8(3 + EventShape.dataByteCount), 0, 1, UInt8(ascii: "b")]  // PUBLISH to "b"
    shape = EventShape(
      byteCount: head.count + EventShape.dataByteCount, dataOffset: head.count, request: head + EventShape.data,
      requestDataOffset: head.count)
    try process.waitUntilItServes(connectPublisher)
  }

  func window(subscribers: Int) -> Int { max(64, min(4096, 100_000 / subscribers)) }

  func subscribe() throws -> CInt {
    let raw = try connectPublisher()
    try Handshake.say([0x82, 6, 0, 1, 0, 1, UInt8(ascii: "b"), 0], to: raw)  // SUBSCRIBE to "b"
    try Handshake.hear([0x90, 3, 0, 1, 0], from: raw)
    return raw
  }

  func connectPublisher() throws -> CInt {
    clients += 1
    let name = Array("c\(clients)".utf8)
    let raw = try Handshake.connect(to: process.folder + "/s")
    // CONNECT: a clean session, no keepalive.
    let body: [UInt8] = [0, 4] + Array("MQTT".utf8) + [4, 2, 0, 0, 0, UInt8(name.count)] + name
    try Handshake.say([0x10, UInt8(body.count)] + body, to: raw)
    try Handshake.hear([0x20, 2, 0, 0], from: raw)
    return raw
  }
}
