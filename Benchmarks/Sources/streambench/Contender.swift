import Glibc
import StreamRuntime

/// A server with its subscribers, and with a publisher if it is a broker.
final class Contender {
  let name: String
  let pool: SubscriberPool
  let feeder: Feeder?
  private let window: Int
  private let greatestRate: Int
  /// Kept alive during the measurement.
  let server: AnyObject

  /// A broker with one publisher.
  /// - Parameter batch: publishes so many events, and the next ones when every subscriber has got these; nil: as many as
  ///   the broker's window allows.
  init(_ broker: any Broker, subscribers: Int, batch: Int? = nil, verifies: Bool) throws {
    name = broker.name
    server = broker
    let sockets = try (0..<subscribers).map { _ in try broker.subscribe() }
    try broker.settle(sockets)
    pool = try SubscriberPool(broker.name, sockets, shape: broker.shape, firstNumber: 0, verifiesAll: verifies)
    window = batch ?? broker.window(subscribers: subscribers)
    greatestRate = broker.greatestRate
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
    (window, greatestRate) = (0, .max)
    feeder = nil
  }

  /// Publishes as fast as the window and the broker allow.
  func run(for seconds: Double) throws {
    let (start, first) = (monotonicSeconds(), feeder?.sent ?? 0)
    let isLimited = greatestRate < .max
    while true {
      let elapsed = monotonicSeconds() - start
      guard elapsed < seconds else { return }
      let most = isLimited ? first + Int(elapsed * Double(greatestRate)) : .max
      try feeder?.feed(upTo: min(pool.least + window, most))
      try pool.read(timeout: isLimited ? 1 : 100)
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
