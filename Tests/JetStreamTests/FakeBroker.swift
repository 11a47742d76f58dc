import Glibc
import StreamRuntime
import Synchronization

/// A server that speaks NATS's protocol on loopback, and answers what a test wants.
final class FakeBroker: Sendable {
  /// What it sends after a message.
  enum Answer: Sendable {
    /// To the message's reply subject. Headers are the whole block, from "NATS/1.0" on.
    case message(headers: String? = nil, [UInt8])
    /// To any subject that the client has subscribed to.
    case to(subject: String, headers: String? = nil, [UInt8])
    case raw([UInt8])
    /// Again and again, until the client closes the connection.
    case endless([UInt8])
    case close
  }

  /// How a connection begins.
  struct Greeting: Sendable {
    var text =
      #"INFO {"server_id":"x","version":"2.9.10","headers":true,"max_payload":1048576,"proto":1}"# + "\r\n"
    /// Whether it closes the connection then.
    var isAll = false
    /// Whether it sends everything, also later, a byte at a time.
    var isSlow = false
  }

  let port: UInt16
  /// - Parameters: the subject, the header block and the content of a message.
  private let answer: @Sendable (String, String, [UInt8]) -> [Answer]
  private let refusal: String?
  private let greeting: Greeting
  private let listener: OwnedDescriptor
  private let answered = Atomic(0)

  /// The number of messages whose answers were sent.
  var answeredCount: Int { answered.load(ordering: .relaxed) }

  var url: String { "nats://127.0.0.1:\(port)" }

  /// - Parameters:
  ///   - greeting: what it sends first.
  ///   - refusal: the error with which it refuses every client.
  init(
    greeting: Greeting = .init(), refusal: String? = nil,
    _ answer: @escaping @Sendable (String, String, [UInt8]) -> [Answer]
  ) throws {
    (self.answer, self.greeting, self.refusal) = (answer, greeting, refusal)
    port = try Broker.reservePort()
    listener = OwnedDescriptor(socket(AF_INET, CInt(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0))
    var address = sockaddr_in()
    address.sin_family = sa_family_t(AF_INET)
    address.sin_port = port.bigEndian
    address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
    var yes: CInt = 1
    setsockopt(listener.raw, SOL_SOCKET, SO_REUSEADDR, &yes, 4)
    let isBound = withUnsafePointer(to: &address) {
      $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
        bind(listener.raw, $0, socklen_t(MemoryLayout<sockaddr_in>.size)) == 0
      }
    }
    guard isBound, listen(listener.raw, 16) == 0 else { throw SystemError("listen") }
    let box = Unmanaged.passRetained(self)
    var thread = pthread_t()
    pthread_create(
      &thread, nil,
      { argument in
        guard let argument else { return nil }
        Unmanaged<FakeBroker>.fromOpaque(argument).takeRetainedValue().serve()
        return nil
      }, box.toOpaque())
    pthread_detach(thread)
  }

  /// Ends the thread once its connection is closed.
  func stop() { shutdown(listener.raw, CInt(SHUT_RDWR)) }

  private func serve() {
    while true {
      let raw = accept(listener.raw, nil, nil)
      guard raw >= 0 else { return }
      serve(OwnedDescriptor(raw))
    }
  }

  /// One connection after the other.
  private func serve(_ connection: consuming OwnedDescriptor) {
    var received: [UInt8] = []
    var subscriptions: [(subject: String, id: String)] = []
    @discardableResult func send(_ bytes: [UInt8]) -> Bool {
      guard greeting.isSlow else {
        return Glibc.send(connection.raw, bytes, bytes.count, CInt(MSG_NOSIGNAL)) == bytes.count
      }
      return bytes.allSatisfy { byte in
        var byte = byte
        return Glibc.send(connection.raw, &byte, 1, CInt(MSG_NOSIGNAL)) == 1
      }
    }
    func receive() -> Bool {
      var buffer = [UInt8](repeating: 0, count: 65536)
      let count = recv(connection.raw, &buffer, buffer.count, 0)
      if count > 0 { received += buffer[..<count] }
      return count > 0
    }
    func line() -> String? {
      while true {
        if let end = received.firstIndex(of: 0x0A) {
          let line = String(decoding: received[..<end].dropLast(), as: UTF8.self)
          received.removeFirst(end + 1)
          return line
        }
        guard receive() else { return nil }
      }
    }
    func message(to subject: String, _ headers: String?, _ bytes: [UInt8]) {
      let prefix = subject.split(separator: ".").dropLast().joined(separator: ".")
      guard
        let subscription = subscriptions.first(where: { $0.subject == subject || $0.subject == prefix + ".*" })
          ?? subscriptions.first(where: { $0.subject.hasSuffix("tail.*.*") && subject.contains(".tail.") })
      else { return }
      if let headers {
        let size = headers.utf8.count
        send(
          Array("HMSG \(subject) \(subscription.id) \(size) \(size + bytes.count)\r\n\(headers)".utf8) + bytes
            + [0x0D, 0x0A])
      } else {
        send(Array("MSG \(subject) \(subscription.id) \(bytes.count)\r\n".utf8) + bytes + [0x0D, 0x0A])
      }
    }
    var yes: CInt = 1
    if greeting.isSlow { setsockopt(connection.raw, CInt(IPPROTO_TCP), TCP_NODELAY, &yes, 4) }
    send(Array(greeting.text.utf8))
    if greeting.isAll { return }
    while let line = line() {
      let words = line.split(separator: " ").map(String.init)
      switch words.first {
      case "PING": send(Array((refusal.map { "-ERR '\($0)'\r\n" } ?? "PONG\r\n").utf8))
      case "SUB": subscriptions.append((words[1], words[words.count - 1]))
      case "PUB", "HPUB":
        guard let total = words.last.flatMap({ Int($0) }) else { return }
        while received.count < total + 2 { guard receive() else { return } }
        let hasHeaders = words[0] == "HPUB"
        let headerCount = hasHeaders ? Int(words[words.count - 2]) ?? 0 : 0
        let reply = words.count > (hasHeaders ? 4 : 3) ? words[2] : nil
        let headers = String(decoding: received[..<headerCount], as: UTF8.self)
        let content = Array(received[headerCount..<total])
        received.removeFirst(total + 2)
        for answer in answer(words[1], headers, content) {
          switch answer {
          case .message(let headers, let bytes): if let reply { message(to: reply, headers, bytes) }
          case .to(let subject, let headers, let bytes): message(to: subject, headers, bytes)
          case .raw(let bytes): send(bytes)
          case .endless(let bytes): while send(bytes) {}
          case .close: return
          }
        }
        answered.add(1, ordering: .relaxed)
      case _: break
      }
    }
  }
}
