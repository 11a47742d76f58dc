/// What a stream's source has done with its upstream since the daemon began to serve the stream. The counters only rise.
public struct UpstreamFigures: Equatable, Sendable {
  /// Requests, or runs of a program.
  public var attempts: UInt64 = 0
  /// Responses that said that the page is unchanged (304).
  public var unchanged: UInt64 = 0
  /// Attempts that failed.
  public var failures: UInt64 = 0
  /// Bytes of responses, decoded, or of a program's output.
  public var bytes: UInt64 = 0
  /// Times from a request to the head of its response.
  public var latency = Histogram()
  /// When the upstream last answered with success (2xx or 304), in microseconds since the Unix epoch; nil: never.
  public var lastAnswer: UInt64?
  /// When the next attempt is due, in microseconds since the Unix epoch; nil: one is under way, or there is no demand.
  public var nextAttempt: UInt64?

  /// Creates figures of a source that has done nothing.
  public init() {}

  /// Adds what an earlier source of the stream has done.
  mutating func add(_ earlier: UpstreamFigures) {
    attempts += earlier.attempts
    unchanged += earlier.unchanged
    failures += earlier.failures
    bytes += earlier.bytes
    latency.add(earlier.latency)
    lastAnswer = lastAnswer ?? earlier.lastAnswer
  }

  /// Counts of durations.
  public struct Histogram: Equatable, Sendable {
    /// The upper bounds of the buckets, inclusive, in microseconds: the defaults of Prometheus' client libraries.
    public static let bounds: [UInt64] = [
      5000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000, 5_000_000, 10_000_000,
    ]

    /// The number of durations in each bucket: above the previous bound, up to the bucket's own. The last has no upper
    /// bound.
    public private(set) var counts = [UInt64](repeating: 0, count: bounds.count + 1)
    /// The sum of all durations in microseconds.
    public private(set) var sum: UInt64 = 0

    mutating func add(_ microseconds: UInt64) {
      counts[Self.bounds.firstIndex { microseconds <= $0 } ?? Self.bounds.count] += 1
      sum &+= microseconds
    }

    mutating func add(_ other: Histogram) {
      for index in counts.indices { counts[index] += other.counts[index] }
      sum &+= other.sum
    }
  }
}
