import Glibc
import StreamRuntime

/// A server with its subscribers, and with a publisher if it is a broker.
final class Contender {
  let name: String
  let pool: SubscriberPool
  let feeder: Feeder?
  private let window: Int
  /// Kept alive during the measurement.
  private let server: AnyObject

  /// A broker with one publisher.
  init(_ broker: any Broker, subscribers: Int, verifies: Bool) throws {
    name = broker.name
    server = broker
    let sockets = try (0..<subscribers).map { _ in try broker.subscribe() }
    try broker.settle(sockets)
    pool = try SubscriberPool(broker.name, sockets, shape: broker.shape, firstNumber: 0, verifiesAll: verifies)
    window = broker.window(subscribers: subscribers)
    let feeder = try Feeder(broker)
    self.feeder = feeder
    try pool.watch(publisher: feeder.socket)
    pool.onPublisher = { try feeder.hear() }
  }

  /// The baseline: prepared blocks, written to each subscriber as fast as it reads.
  init(bare server: BareServer, subscribers: Int) throws {
    name = "bare limit"
    self.server = server
    let sockets = try (0..<subscribers).map { _ in try Handshake.connect(to: server.path) }
    pool = try SubscriberPool("bare limit", sockets, shape: BareServer.shape, firstNumber: nil, verifiesAll: false)
    window = 0
    feeder = nil
  }

  /// Publishes as fast as the window allows.
  func run(for seconds: Double) throws {
    let end = monotonicSeconds() + seconds
    while monotonicSeconds() < end {
      try feeder?.feed(upTo: pool.least + window)
      try pool.read(timeout: 100)
    }
  }

  /// Reads the events in flight.
  /// - Throws: when an event was lost or duplicated.
  func drain() throws {
    guard let feeder else {
      while try pool.read(timeout: 50) {}
      return
    }
    while pool.least < feeder.sent {
      try feeder.feed(upTo: feeder.sent)
      guard try pool.read(timeout: 10_000) else {
        throw BenchError("\(name): \(feeder.sent) events sent, but only \(pool.least) received by one subscriber")
      }
    }
    guard pool.most == feeder.sent else { throw BenchError("\(name): more events received than sent") }
  }
}
