import Glibc
import StreamRuntime

/// A server with its subscribers, and with a publisher where it is a broker.
final class Contender {
  let name: String
  let crowd: Crowd
  let feeder: Feeder?
  private let window: Int
  /// Kept alive for as long as it is measured.
  private let server: AnyObject

  /// A broker, with one publisher.
  init(_ broker: any Broker, subscribers: Int, verifies: Bool) throws {
    name = broker.name
    server = broker
    let sockets = try (0..<subscribers).map { _ in try broker.subscribe() }
    try broker.settle(sockets)
    crowd = try Crowd(broker.name, sockets, shape: broker.shape, firstNumber: 0, verifiesAll: verifies)
    window = broker.window(subscribers: subscribers)
    let feeder = try Feeder(broker)
    self.feeder = feeder
    try crowd.watch(publisher: feeder.socket)
    crowd.onPublisher = { try feeder.hear() }
  }

  /// The limit: blocks that stand ready, written to each as fast as it reads.
  init(bare server: BareServer, subscribers: Int) throws {
    name = "bare limit"
    self.server = server
    let sockets = try (0..<subscribers).map { _ in try Talk.connect(to: server.path) }
    crowd = try Crowd("bare limit", sockets, shape: BareServer.shape, firstNumber: nil, verifiesAll: false)
    window = 0
    feeder = nil
  }

  /// As fast as it goes, within the window.
  func run(for seconds: Double) throws {
    let end = monotonicSeconds() + seconds
    while monotonicSeconds() < end {
      try feeder?.feed(upTo: crowd.least + window)
      try crowd.read(patience: 100)
    }
  }

  /// Reads what is still under way.
  /// - Throws: when an event was lost or doubled.
  func drain() throws {
    guard let feeder else {
      while try crowd.read(patience: 50) {}
      return
    }
    while crowd.least < feeder.sent {
      try feeder.feed(upTo: feeder.sent)
      guard try crowd.read(patience: 10_000) else {
        throw BenchError("\(name): \(feeder.sent) events sent, but only \(crowd.least) received by one subscriber")
      }
    }
    guard crowd.most == feeder.sent else { throw BenchError("\(name): more events received than sent") }
  }
}
