// StreamClient as Tests/Conformance/README.md describes a driver.

import Dispatch
import Glibc
import Reactive
import StreamClient
import Synchronization

/// What a loop delivers and the main thread takes.
final class Inbox<Item: Sendable>: Sendable {
  private let items = Mutex<[Item]>([])
  private let count = DispatchSemaphore(value: 0)

  func put(_ item: Item) {
    items.withLock { $0.append(item) }
    count.signal()
  }

  /// - Returns: the next item; `nil` once the time is over.
  func take(within milliseconds: Int) -> Item? {
    guard count.wait(timeout: .now() + .milliseconds(milliseconds)) == .success else { return nil }
    return items.withLock { $0.removeFirst() }
  }
}

/// A subscription. Its window is the credit that it keeps open by itself. The loop uses the inbox alone.
final class Reader: Subscriber {
  typealias Input = StreamEvent
  typealias Failure = StreamError

  enum Item: Sendable {
    case event(StreamEvent)
    case end(Subscribers.Completion<StreamError>)
  }

  private let inbox = Inbox<Item>()
  private let window: Int
  private var subscription: (any Subscription)?
  private var end: Item?

  init(window: Int) { self.window = window }

  func receive(subscription: any Subscription) {
    self.subscription = subscription
    if window > 0 { subscription.request(.max(window)) }
  }

  func receive(_ event: StreamEvent) -> Subscribers.Demand {
    inbox.put(.event(event))
    return .none
  }

  func receive(completion: Subscribers.Completion<StreamError>) { inbox.put(.end(completion)) }

  func request(_ demand: Subscribers.Demand) { subscription?.request(demand) }

  func cancel() { subscription?.cancel() }

  /// The end is returned again.
  func next(within milliseconds: Int) -> Item? {
    if let end { return end }
    guard let item = inbox.take(within: milliseconds) else { return nil }
    switch item {
    case .event: if window > 0 { request(.max(1)) }
    case .end: end = item
    }
    return item
  }
}

/// A publisher's values, which wait for credit, and its end.
final class Sender {
  private let values = PassthroughSubject<[UInt8], Never>()
  private let end = Inbox<Subscribers.Completion<StreamError>>()
  private var sending: AnyCancellable?
  private var completion: Subscribers.Completion<StreamError>?

  init(_ connection: StreamConnection, _ stream: String, _ name: PublisherName?) {
    let waiting = values.buffer(size: .max, prefetch: .byRequest, whenFull: .dropOldest)
    sending = connection.publish(waiting, to: stream, as: name) { [end] in end.put($0) }
  }

  func publish(_ value: [UInt8]) { values.send(value) }

  func finish(within milliseconds: Int) -> Subscribers.Completion<StreamError>? {
    values.send(completion: .finished)
    completion = completion ?? end.take(within: milliseconds)
    return completion
  }

  func cancel() { sending = nil }
}

func encoded(_ bytes: some Sequence<UInt8>) -> String {
  var text: [UInt8] = []
  let digits = Array("0123456789ABCDEF".utf8)
  for byte in bytes {
    switch byte {
    case UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
      UInt8(ascii: "a")...UInt8(ascii: "z"):
      text.append(byte)
    default: text += [UInt8(ascii: "%"), digits[Int(byte >> 4)], digits[Int(byte & 15)]]
    }
  }
  return String(decoding: text, as: UTF8.self)
}

func decoded(_ text: Substring) -> [UInt8] {
  let parts = text.utf8.split(separator: UInt8(ascii: "%"), omittingEmptySubsequences: false)
  var bytes = Array(parts[0])
  for part in parts.dropFirst() {
    if let digits = String(part.prefix(2)), let byte = UInt8(digits, radix: 16) { bytes.append(byte) }
    bytes += part.dropFirst(2)
  }
  return bytes
}

/// Verb and words of a command.
struct Command {
  let verb: Substring
  private let words: [Substring: Substring]

  init(_ line: String) {
    let parts = line.split(separator: " ")
    verb = parts.first ?? ""
    let pairs = parts.dropFirst().map { $0.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false) }
    words = Dictionary(pairs.map { ($0[0], $0.count > 1 ? $0[1] : "") }) { $1 }
  }

  func has(_ key: Substring) -> Bool { words[key] != nil }
  func bytes(_ key: Substring) -> [UInt8] { decoded(words[key] ?? "") }
  func text(_ key: Substring) -> String { String(decoding: bytes(key), as: UTF8.self) }
  func number(_ key: Substring) -> Int { Int(text(key)) ?? 0 }
}

func failure(_ verb: String, _ error: StreamError) -> String {
  let kind =
    switch error {
    case .cannotConnect, .disconnected: "connection-lost"
    case .rejected: "rejected"
    case .invalid(_, .notMapped?), .invalid(_, .notMappable?): "not-supported"
    case .invalid: "invalid"
    case .canceled: "canceled"
    case .lagged: "lagged"
    case .failed(.applicationError, _, _): "source-failed"
    case .failed, .cutOff: "protocol"
    }
  let reason = error.reason.map { " reason=\($0.rawValue)" } ?? ""
  return "\(verb) kind=\(kind)\(reason) sentence=\(encoded(error.description.utf8))"
}

func described(_ item: Reader.Item?) -> String {
  switch item {
  case nil: return "nothing"
  case .end(.finished): return "end kind=complete"
  case .end(.failure(let error)): return failure("end", error)
  case .event(let event):
    let gap =
      switch event.gap {
      case nil: "0"
      case .events(let count): "\(count)"
      case .unknown: "unknown"
      }
    let common = "id=\(event.id ?? 0) time=\(event.time ?? 0) left_out=\(event.leftOutCount) gap=\(gap)"
    return event.kind == .marker ? "marker \(common)" : "event \(common) data=\(encoded(event.data))"
  }
}

/// - Parameter microseconds: since the Unix epoch.
func date(_ microseconds: Int) -> String {
  var (seconds, parts) = (time_t(microseconds / 1_000_000), tm())
  gmtime_r(&seconds, &parts)
  func padded(_ number: some BinaryInteger, _ count: Int) -> String {
    let digits = String(number)
    return String(repeating: "0", count: max(0, count - digits.count)) + digits
  }
  let day = "\(parts.tm_year + 1900)-\(padded(parts.tm_mon + 1, 2))-\(padded(parts.tm_mday, 2))"
  let time = "\(padded(parts.tm_hour, 2)):\(padded(parts.tm_min, 2)):\(padded(parts.tm_sec, 2))"
  return "\(day)T\(time).\(padded(microseconds % 1_000_000, 6))Z"
}

func options(_ command: Command) throws -> SubscribeOptions {
  let since = command.number("since")
  let start: SubscribeOptions.Start =
    switch command.text("from") {
    case "latest": .latest
    case "new": .new
    case "state": .state
    case "last": .last(UInt64(since))
    case "id": .after(id: UInt64(since))
    case "time": .since(date(since))
    case "ago": .since("-\(since / 1000)ms")
    default: .replay
    }
  let filter = command.has("where") ? try EventFilter(json: command.bytes("where")) : nil
  return SubscribeOptions(
    from: start, onLag: .init(rawValue: command.text("on_lag")), filter: filter, marker: command.has("marker"))
}

final class Driver {
  private var connections: [String: StreamConnection] = [:]
  private var readers: [String: Reader] = [:]
  private var senders: [String: Sender] = [:]

  func reply(to command: Command) throws -> String {
    switch command.verb {
    case "connect":
      let token = command.has("token") ? command.text("token") : nil
      connections[command.text("connection")] = try StreamConnection(
        socket: command.text("address"), token: { token }, keepaliveInterval: .milliseconds(300))
    case "subscribe": try subscribe(command)
    case "map": return try map(command)
    case "request":
      let count = command.text("count")
      readers[command.text("subscription")]?.request(count == "unlimited" ? .unlimited : .max(Int(count) ?? 0))
    case "next": return described(readers[command.text("subscription")]?.next(within: command.number("wait")))
    case "get": return get(command)
    case "make", "forget", "ask": return give(command)
    case "publisher": makeSender(command)
    case "publish": senders[command.text("publisher")]?.publish(command.bytes("data"))
    case "finish":
      switch senders[command.text("publisher")]?.finish(within: command.number("wait")) {
      case nil: return "nothing"
      case .failure(let error): return failure("error", error)
      case .finished: break
      }
    case "close":
      readers.removeValue(forKey: command.text("subscription"))?.cancel()
      senders.removeValue(forKey: command.text("publisher"))?.cancel()
      connections.removeValue(forKey: command.text("connection"))?.close()
    default: return failure("error", .invalid("unknown command"))
    }
    return "ok"
  }

  private func subscribe(_ command: Command) throws {
    let reader = Reader(window: command.number("window"))
    readers[command.text("subscription")] = reader
    let reconnect = command.has("reconnect") ? ReconnectPolicy() : nil
    let options = try options(command)
    connections[command.text("connection")]?.stream(command.text("stream"), options: options, reconnect: reconnect)
      .receive(subscriber: reader)
  }

  /// Replies once the daemon has: its replies on one connection keep their order, but those of system streams may be later.
  private func map(_ command: Command) throws -> String {
    guard let connection = connections[command.text("connection")] else { return "ok" }
    let reader = Reader(window: 1)
    readers[command.text("subscription")] = reader
    let options = try options(command)
    connection.mapped(
      command.text("stream"), from: options.from, onLag: options.onLag,
      reconnect: command.has("reconnect") ? ReconnectPolicy() : nil
    ).receive(subscriber: reader)
    let catalogue = Reader(window: 1)
    connection.value(of: "$streams").receive(subscriber: catalogue)
    _ = catalogue.next(within: 10_000)
    return "ok"
  }

  private func get(_ command: Command) -> String {
    let reader = Reader(window: 1)
    connections[command.text("connection")]?.value(of: command.text("stream")).receive(subscriber: reader)
    defer { reader.cancel() }
    switch reader.next(within: command.number("wait")) {
    case .end(.failure(let error)): return failure("error", error)
    case let item: return described(item)
    }
  }

  private func give(_ command: Command) -> String {
    guard let connection = connections[command.text("connection")] else { return "ok" }
    let (verb, stream, data) = (command.verb, command.text("stream"), command.bytes("data"))
    let outcome = Inbox<Result<String, StreamError>>()
    let task = Task {
      do throws(StreamError) {
        switch verb {
        case "make": try await connection.make(stream)
        case "forget": try await connection.forget(stream)
        default: return outcome.put(.success("made data=\(encoded(try await connection.request(stream, data).utf8))"))
        }
        outcome.put(.success("ok"))
      } catch {
        outcome.put(.failure(error))
      }
    }
    switch outcome.take(within: command.number("wait")) {
    case nil:
      task.cancel()
      return "nothing"
    case .success(let reply): return reply
    case .failure(let error): return failure("error", error)
    }
  }

  private func makeSender(_ command: Command) {
    guard let connection = connections[command.text("connection")] else { return }
    let first = command.has("first") ? UInt64(command.number("first")) : 1
    let name = command.has("name") ? PublisherName(command.text("name"), firstNumber: first) : nil
    senders[command.text("publisher")] = Sender(connection, command.text("stream"), name)
  }
}

func send(_ line: String) {
  print(line)
  fflush(nil)
}

send("conformance 1 request last first keepalive map token reasons commands answers")
let driver = Driver()
while let line = readLine(), line != "quit" {
  do {
    send(try driver.reply(to: Command(line)))
  } catch {
    send(failure("error", .invalid("\(error)")))
  }
}
send("ok")
