import FoundationEssentials
import StreamProtocol
import StreamRuntime

/// The outcome of `check`: one line, and the exit code of a monitoring plug-in. Source of the codes and of the line's form:
/// Monitoring Plugins, "Development Guidelines", which Nagios, Icinga and others read.
struct StreamCheck: Equatable {
  /// In the order of their exit codes, not of their severity.
  enum Verdict: CInt {
    case ok = 0
    case warning, critical, unknown

    var word: String {
      switch self {
      case .ok: "OK"
      case .warning: "WARNING"
      case .critical: "CRITICAL"
      case .unknown: "UNKNOWN"
      }
    }
  }

  let name: String
  let verdict: Verdict
  /// One sentence.
  let reason: String
  /// The state in the daemon's `$streams`; nil: unknown.
  var state: String?
  /// The time since the newest event was last known to be the present one, in microseconds; nil: unknown.
  var age: UInt64?
  var maxAge: Duration?
  /// When the stream became stale, in microseconds since the Unix epoch; nil: not stale.
  var staleSince: UInt64?
  /// Whether its events are on disk; nil: unknown, or not meant to be.
  var isOnDisk: Bool?

  /// Nothing is known about the stream, for this reason.
  init(of name: String, unknown reason: String) { (self.name, self.reason, verdict) = (name, reason, .unknown) }

  /// - Parameters:
  ///   - entry: the stream's entry in the catalogue.
  ///   - counts: the stream's part of the statistics.
  ///   - time: the time of the statistics, on the daemon's clock, in microseconds since the Unix epoch.
  ///   - maxAge: nil: any age.
  init(_ entry: CatalogueEntry, _ counts: StatisticsSnapshot.Stream?, at time: UInt64?, maxAge: Duration?) {
    (name, self.maxAge) = (entry.name, maxAge)
    let state = entry.state ?? "unknown"
    self.state = entry.state
    let age = counts?.fresh.flatMap { fresh in time.map { $0 > fresh ? $0 - fresh : 0 } }
    self.age = age
    staleSince = entry.staleSince ?? entry.fleet?.staleSince
    isOnDisk = entry.onDisk
    let isOld = maxAge.map { limit in age.map { $0 > UInt64(max(0, limit.wholeMicroseconds)) } ?? true } ?? false
    let ageText = age.map { "fresh \(Quantity.age(microseconds: $0)) ago" } ?? "its age is unknown"
    reason = "\(entry.name) is \(state), \(ageText)" + (entry.message.map { ": \($0)" } ?? "")
    switch state {
    case "failing", "failed": verdict = .critical
    case _ where staleSince != nil: verdict = .critical
    case "idle" where isOld: verdict = .warning
    case _ where isOld: verdict = .critical
    case "blocked", "waiting": verdict = .warning
    case "running" where isOnDisk == false, "idle" where isOnDisk == false, "finished" where isOnDisk == false:
      verdict = .warning
    case "running", "idle", "finished": verdict = .ok
    default: verdict = .unknown  // the daemon has another version
    }
  }

  /// The line for a person and a monitoring system: `OK: quotes is running, fresh 1.2s ago | age=1.234s;;30`.
  var text: String {
    // A vertical bar separates the figures.
    let line = "\(verdict.word): \(reason)".escapedForReading.replacing("|", with: "/")
    let limit = maxAge.map { ";;\(Self.seconds($0.wholeMicroseconds))" } ?? ""
    return line + (age.map { " | age=\(Self.seconds(Int(clamping: $0)))s\(limit)" } ?? "") + "\n"
  }

  /// The same as a JSON object on one line.
  var json: String {
    var members = [
      ("name", JSONText.string(name)), ("verdict", JSONText.string(verdict.word.lowercased())),
      ("reason", JSONText.string(reason)),
    ]
    if let state { members.append(("state", JSONText.string(state))) }
    if let age { members.append(("age", Self.seconds(Int(clamping: age)))) }
    if let maxAge { members.append(("max_age", Self.seconds(maxAge.wholeMicroseconds))) }
    if let staleSince { members.append(("stale_since", String(staleSince))) }
    if let isOnDisk { members.append(("on_disk", String(isOnDisk))) }
    return "{\(members.map { "\"\($0.0)\":\($0.1)" }.joined(separator: ","))}\n"
  }

  /// Seconds with three decimals at most: `0.25`, `30`.
  private static func seconds(_ microseconds: Int) -> String {
    let (whole, milliseconds) = (microseconds / 1_000_000, microseconds / 1000 % 1000)
    guard milliseconds > 0 else { return "\(whole)" }
    var digits = String(1000 + milliseconds).dropFirst()
    while digits.last == "0" { digits.removeLast() }
    return "\(whole).\(digits)"
  }
}
