import Glibc
import StreamRuntime

/// How an event looks that arrives, and how one is sent: every one has the same size, so that counting bytes counts events.
///
/// The first eight bytes of the 64 that make an event's data are its number, the next eight the moment when it was sent.
struct EventShape {
  /// Of one event on the subscriber's socket.
  var byteCount: Int
  /// Where its data begins.
  var dataOffset: Int
  /// Where the broker's own number of the event stands, big endian; nil where it gives none.
  var idOffset: Int?
  /// What publishes one event.
  var request: [UInt8]
  /// Where the data is in it.
  var requestDataOffset: Int

  static let dataByteCount = 64
  static let data = [UInt8](repeating: UInt8(ascii: "x"), count: dataByteCount)
}

/// A server that hands what is published on to whoever has subscribed. It runs until the value is gone.
protocol Broker: AnyObject {
  var name: String { get }
  var shape: EventShape { get }
  var process: ServerProcess { get }
  /// A subscriber that nothing is on the way to yet; the descriptor is the caller's.
  func subscribe() throws -> CInt
  /// Takes what else the broker says to new subscribers: from then on there are only events.
  func settle(_ subscribers: [CInt]) throws
  /// A publisher; the descriptor is the caller's.
  func connectPublisher() throws -> CInt
  /// Looks at what the broker says to the publisher.
  /// - Returns: how many more events it may send.
  func credit(from bytes: UnsafeRawBufferPointer) throws -> Int
  /// What the publisher may send before it has heard anything.
  var initialCredit: Int { get }
  /// How many events the publisher has sent when it is connected.
  var eventsOnConnecting: Int { get }
  /// How many events the publisher may be ahead of the slowest subscriber: enough that nobody waits for it, and no more
  /// than the broker can hold for each of them.
  func window(subscribers: Int) -> Int
}

extension Broker {
  var initialCredit: Int { .max }
  var eventsOnConnecting: Int { 0 }
  func window(subscribers: Int) -> Int { max(1024, min(65536, (256 << 20) / shape.byteCount / subscribers)) }
  func credit(from bytes: UnsafeRawBufferPointer) throws -> Int { 0 }
  func settle(_ subscribers: [CInt]) throws {}
}

/// What became of a run that cannot be counted.
struct BenchError: Error, CustomStringConvertible {
  let description: String
  init(_ description: String) { self.description = description }
}

/// Which brokers a row is about: streamd, and its peers where they were asked for and are installed.
func brokers(_ options: Options, stream: String = StreamdBroker.stream) throws -> [any Broker] {
  var brokers: [any Broker] = [try StreamdBroker(options.program, stream: stream)]
  guard options.withPeers else { return brokers }
  if let program = findProgram("redis-server") { brokers.append(try RedisBroker(program)) }
  if let program = findProgram("nats-server") { brokers.append(try NatsBroker(program)) }
  if let program = findProgram("mosquitto") { brokers.append(try MosquittoBroker(program)) }
  return brokers
}

private func findProgram(_ name: String) -> String? {
  let folders = (getenv("PATH").map { String(cString: $0) } ?? "").split(separator: ":").map(String.init)
  return (folders + ["/usr/sbin"]).map { "\($0)/\(name)" }.first { access($0, X_OK) == 0 }
}
