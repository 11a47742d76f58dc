import Glibc
import MappedLog
import ReplayLog

/// Compares the process's memory limit with the maximum of all streams' buffers.
struct MemoryBudget: Equatable {
  /// The limit in bytes.
  let limit: Int
  /// The origin of the limit, for a message.
  let reason: String

  /// The factor by which buffers may exceed the limit. A buffer uses memory as it fills, and most buffers are never
  /// full.
  static let overcommitment = 4

  /// The lowest of the machine's memory and the limits of the process's control groups.
  static func ofThisProcess() -> MemoryBudget {
    let pages = sysconf(CInt(_SC_PHYS_PAGES))
    let machine = pages > 0 ? pages * sysconf(CInt(_SC_PAGESIZE)) : .max
    let groups =
      (try? readFile(at: "/proc/self/cgroup", limit: 1 << 16)).map { String(decoding: $0, as: UTF8.self) } ?? ""
    let group = groupLimit(groups, root: "/sys/fs/cgroup") ?? .max
    return group < machine
      ? MemoryBudget(limit: group, reason: "the control group's limit (MemoryMax=)")
      : MemoryBudget(limit: machine, reason: "the machine's memory")
  }

  /// The lowest limit of a control group and its ancestors.
  ///
  /// - Parameters:
  ///   - groups: the content of /proc/self/cgroup: `0::/path` in the unified hierarchy, `4:memory:/path` in an older
  ///     one.
  ///   - root: the mount point of the control groups.
  /// - Returns: nil if there is no limit, or none can be read.
  static func groupLimit(_ groups: String, root: String) -> Int? {
    var limits: [Int] = []
    for line in groups.split(separator: "\n") {
      let parts = line.split(separator: ":", maxSplits: 2, omittingEmptySubsequences: false)
      guard parts.count == 3 else { continue }
      let place: (folder: String, file: String)
      if parts[1].isEmpty {
        place = (root, "memory.max")
      } else if parts[1].split(separator: ",").contains("memory") {
        place = ("\(root)/memory", "memory.limit_in_bytes")
      } else {
        continue
      }
      var path = parts[2].split(separator: "/").filter { $0 != ".." }
      while true {
        let file = "\(place.folder)/\((path + [place.file[...]]).joined(separator: "/"))"
        if let text = try? readFile(at: file, limit: 64),
          let limit = Int(String(decoding: text, as: UTF8.self).prefix { $0.isNumber })
        {
          limits.append(limit)
        }
        guard path.popLast() != nil else { break }
      }
    }
    return limits.min()
  }

  /// Maximum bytes of the buffers in memory and of the maps. Buffers on disk are in the page cache, which the kernel
  /// can reclaim.
  static func demand(of streams: [Configuration.Stream]) -> Int {
    streams.filter { $0.keep != .disk }.reduce(0) { sum, stream in
      let limits = EventLog.Limits(stream)
      let mapBytes = stream.map ? MapRegion.byteCount(events: limits.events, bytes: limits.bytes) : 0
      let (total, overflow) = sum.addingReportingOverflow(limits.regionBytes + mapBytes)
      return overflow ? .max : total
    }
  }

  /// Bytes for the buffers of small logs, which take memory as they need it: what the others leave, at least half.
  func bytesOfSmallLogs(_ configuration: Configuration) -> Int {
    let allowed = configuration.server.memory ?? limit
    let others = Self.demand(of: configuration.streams.filter { !EventLog.Limits($0).isSmall })
    return allowed - min(others, allowed / 2)
  }

  /// The assessment of a configuration.
  enum Verdict: Equatable {
    case fits
    /// The buffers exceed the limit, possibly by intention; with the remark.
    case overcommits(String)
    case refused(String)
  }

  /// The remark on an accepted configuration; nil: none.
  static func remark(on configuration: Configuration) -> String? {
    guard case .overcommits(let sentence) = ofThisProcess().verdict(on: configuration) else { return nil }
    return sentence
  }

  func verdict(on configuration: Configuration) -> Verdict {
    let demand = Self.demand(of: configuration.streams)
    let allowed = configuration.server.memory
    guard demand > allowed ?? limit else { return verdict(onTemplatesOf: configuration, besides: demand) }
    let sentence =
      "the buffers of \(counted(configuration.streams.count, "stream")) can take \(Self.written(demand)) of memory together"
    if let allowed { return .refused("\(sentence), more than the allowed \(Self.written(allowed))") }
    let excess = "\(sentence), more than \(reason), \(Self.written(limit))"
    return demand / Self.overcommitment > limit
      ? .refused("\(excess), \(Self.overcommitment) times over; server.memory can allow it")
      : .overcommits("\(excess); server.memory sets a limit")
  }

  /// Streams of templates give up their memory when it is needed, so that they are never too many for a configuration.
  private func verdict(onTemplatesOf configuration: Configuration, besides demand: Int) -> Verdict {
    let demand = configuration.templates.reduce(demand) { sum, template in
      let (all, overflow) = Self.demand(of: [template.sample]).multipliedReportingOverflow(by: template.streams)
      let (total, isOver) = sum.addingReportingOverflow(all)
      return overflow || isOver ? .max : total
    }
    guard demand > configuration.server.memory ?? limit else { return .fits }
    let bound =
      configuration.server.memory.map { "the allowed \(Self.written($0))" } ?? "\(reason), \(Self.written(limit))"
    return .overcommits(
      "the buffers of all streams that \(counted(configuration.templates.count, "template")) can make may take "
        + "\(Self.written(demand)) of memory together, more than \(bound): unused ones are forgotten then")
  }

  /// A size with one decimal, rounded down.
  private static func written(_ bytes: Int) -> String {
    let units = [("TiB", 40), ("GiB", 30), ("MiB", 20)]
    let (unit, shift) = units.first { bytes >> $0.1 > 0 } ?? ("KiB", 10)
    let tenths = (bytes >> shift) * 10 + ((bytes & ((1 << shift) - 1)) * 10) >> shift
    return tenths % 10 == 0 ? "\(tenths / 10) \(unit)" : "\(tenths / 10).\(tenths % 10) \(unit)"
  }
}
