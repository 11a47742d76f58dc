/// The object of `$config`: the configuration that the daemon serves. Only the text is required: client and daemon can
/// have different versions. Source of the meanings: `docs/WIRE.md`, "System streams".
package struct ConfigurationReport: Codable, Equatable, Sendable {
  /// TOML without secrets.
  package var text: String
  /// The first error of the files and the number of the others, if a previous configuration is served for that reason.
  package var error: String?
  /// The time at which the files were last read, in microseconds of CLOCK_MONOTONIC.
  package var readAt: UInt64?
  /// Keys of `text` that take effect after a restart.
  package var restartKeys: [String]?

  package init(text: String, error: String? = nil, readAt: UInt64? = nil, restartKeys: [String]? = nil) {
    (self.text, self.error, self.readAt, self.restartKeys) = (text, error, readAt, restartKeys)
  }

  private enum CodingKeys: String, CodingKey {
    case text, error
    case readAt = "read_monotonic_microseconds"
    case restartKeys = "restart_keys"
  }
}
