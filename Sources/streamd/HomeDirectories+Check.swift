import StreamSources
import Systemd

extension HomeDirectories {
  private static let unit = "streamd.service"

  /// The remark of `--check` on programs that the unit hides, although this process sees them; nil: there are none.
  /// - Parameter protection: ProtectHome= of the unit; nil: unknown. Only called if there is such a program.
  static func remark(
    on configuration: Configuration, protection: () -> String? = { ServiceManager.homeProtection(of: unit) }
  ) -> String? {
    let names = configuration.streamsAndTemplates.filter { stream in
      guard let program = stream.source.section.executable else { return false }
      return parents.contains { program.hasPrefix($0 + "/") }
    }.map(\.name)
    guard !names.isEmpty, let setting = protection(), ["yes", "tmpfs"].contains(setting) else { return nil }
    return "\(unit) does not see programs in home directories (ProtectHome=\(setting)) of: "
      + "\(names.joined(separator: ", ")); \(remedy)"
  }
}
