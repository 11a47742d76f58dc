import FoundationEssentials
import StreamClient
import StreamProtocol

extension StatisticsSnapshot {
  init(_ event: StreamEvent) throws(Stop) {
    do {
      self = try JSONDecoder().decode(StatisticsSnapshot.self, from: Data(event.data))
    } catch {
      throw .badAnswer("unexpected reply from the daemon: the counters cannot be read")
    }
  }
}
