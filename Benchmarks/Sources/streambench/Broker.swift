import Glibc
import StreamRuntime

/// The format of an event on arrival and on publication. As a rule every event has the same size, so that counting bytes
/// counts events.
///
/// The first eight bytes of an event's 64 data bytes are its number, the next eight the time at which it was sent.
struct EventShape {
  /// Bytes of one event on the subscriber's socket; the maximum if they are delimited.
  var byteCount: Int
  /// The offset of its data.
  var dataOffset: Int
  /// The offset of the broker's own number of the event, big endian; nil where it has none.
  var idOffset: Int?
  /// The request that publishes one event.
  var request: [UInt8]
  /// The offset of the data in it.
  var requestDataOffset: Int
  /// The data must be text without a line end: its numbers have six bits in each byte, from `@` on.
  var isText = false
  /// The bits that a number has.
  var numberBits: UInt64 { isText ? 0xffff_ffff_ffff : .max }
  /// Events differ in size, and each ends with its data and an empty line.
  var isDelimited = false

  static let dataByteCount = 64
  /// - Parameter number: as text, its lowest 48 bits count.
  func encoded(_ number: UInt64) -> UInt64 {
    guard isText else { return number }
    // Halves of 24 bits to 32, quarters of 12 to 16, eighths of 6 to 8.
    var bits = number & 0x00ff_ffff | (number & 0xffff_ff00_0000) << 8
    bits = bits & 0x0000_0fff_0000_0fff | (bits & 0x00ff_f000_00ff_f000) << 4
    bits = bits & 0x003f_003f_003f_003f | (bits & 0x0fc0_0fc0_0fc0_0fc0) << 2
    return bits | 0x4040_4040_4040_4040
  }

  func decoded(_ bytes: UInt64) -> UInt64 {
    guard isText else { return bytes }
    var bits = bytes & 0x003f_003f_003f_003f | (bytes & 0x3f00_3f00_3f00_3f00) >> 2
    bits = bits & 0x0000_0fff_0000_0fff | (bits & 0x0fff_0000_0fff_0000) >> 4
    return bits & 0x00ff_ffff | (bits & 0x00ff_ffff_0000_0000) >> 8
  }

  static let data = [UInt8](repeating: UInt8(ascii: "x"), count: dataByteCount)
}

/// A server that delivers published events to subscribers. It runs until the value is released.
protocol Broker: AnyObject {
  var name: String { get }
  var shape: EventShape { get }
  var process: ServerProcess { get }
  /// A subscriber to which nothing was sent yet; the caller owns the descriptor.
  func subscribe() throws -> CInt
  /// Reads the broker's other messages to new subscribers: only events follow.
  func settle(_ subscribers: [CInt]) throws
  /// A publisher; the caller owns the descriptor.
  func connectPublisher() throws -> CInt
  /// Reads the broker's replies to the publisher.
  /// - Returns: how many more events it may send.
  func credit(from bytes: UnsafeRawBufferPointer) throws -> Int
  /// The number of events that the publisher may send before any reply.
  var initialCredit: Int { get }
  /// The number of events that the publisher has sent when it is connected.
  var eventsOnConnecting: Int { get }
  /// Maximum lead of the publisher over the slowest subscriber, in events: large enough that no subscriber waits for
  /// it, and within the broker's buffers.
  func window(subscribers: Int) -> Int
  /// The number of events per second up to which it delivers all of them.
  var greatestRate: Int { get }
}

extension Broker {
  var initialCredit: Int { .max }
  var eventsOnConnecting: Int { 0 }
  var greatestRate: Int { .max }
  func window(subscribers: Int) -> Int { max(1024, min(65536, (256 << 20) / shape.byteCount / subscribers)) }
  func credit(from bytes: UnsafeRawBufferPointer) throws -> Int { 0 }
  func settle(_ subscribers: [CInt]) throws {}
}

/// The failure of a run.
struct BenchError: Error, CustomStringConvertible {
  let description: String
  init(_ description: String) { self.description = description }
}

/// The brokers of a row: streamd, and its peers if they were requested and are installed.
func brokers(_ options: Options, stream: String = StreamdBroker.stream) throws -> [any Broker] {
  var brokers: [any Broker] = [try StreamdBroker(options.program, stream: stream)]
  guard options.withPeers else { return brokers }
  if let program = findProgram("redis-server") { brokers.append(try RedisBroker(program)) }
  if let program = findProgram("nats-server") { brokers.append(try NatsBroker(program)) }
  if let program = findProgram("mosquitto") { brokers.append(try MosquittoBroker(program)) }
  return brokers
}

func findProgram(_ name: String) -> String? {
  let folders = unsafe (getenv("PATH").map { unsafe String(cString: $0) } ?? "").split(separator: ":").map(String.init)
  return (folders + ["/usr/sbin"]).map { "\($0)/\(name)" }.first { unsafe access($0, X_OK) == 0 }
}
