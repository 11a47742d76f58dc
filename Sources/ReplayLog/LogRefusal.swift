/// Why a log cannot continue in a region.
public struct LogRefusal: Error, Equatable, CustomStringConvertible {
  /// How to handle the region.
  public enum Remedy: Equatable, Sendable {
    /// Unusable by any version: replace the region.
    case replace
    /// Possibly usable, for example by another version: rename the region, with this suffix, before replacing it.
    case setAside(String)
    /// Inaccessible, and possibly intact: leave the region.
    case leave
    /// In use by another process: leave the region until that process has ended.
    case wait
  }

  /// The reason, as the end of a sentence that begins with the region's name.
  public let description: String
  /// How to handle the region.
  public let remedy: Remedy

  /// The log of a stream whose events come from a fleet now.
  public static let ownIDs = LogRefusal(
    "its ids are this host's own, and the stream is shared with other hosts now", .setAside("own"))

  /// Another process has continued the file of a log that continues elsewhere.
  public static let fork = LogRefusal(
    "it has events of another process, which the newer log that the service manager stored lacks", .setAside("other"))

  init(_ description: String, _ remedy: Remedy = .replace) {
    self.description = description
    self.remedy = remedy
  }
}
