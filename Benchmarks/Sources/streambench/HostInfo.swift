import Glibc

/// The machine of the measurement, for tables and pictures.
enum HostInfo {
  /// The processor, the number of cores, the kernel, and the date: `AMD EPYC, 2 cores, Linux 6.1, 2026-11-20`.
  static var description: String {
    var names = utsname()
    unsafe uname(&names)
    let release = unsafe withUnsafeBytes(of: &names.release) {
      unsafe String(decoding: $0.prefix { $0 != 0 }, as: UTF8.self)
    }
    var now = time(nil)
    var date = unsafe tm()
    unsafe localtime_r(&now, &date)
    func digits(_ number: CInt) -> String { number < 10 ? "0\(number)" : "\(number)" }
    return [
      processor, "\(sysconf(CInt(_SC_NPROCESSORS_ONLN))) cores", "Linux \(release)",
      unsafe "\(date.tm_year + 1900)-\(digits(date.tm_mon + 1))-\(digits(date.tm_mday))",
    ].joined(separator: ", ")
  }

  private static var processor: String {
    guard let file = unsafe fopen("/proc/cpuinfo", "r") else { return "unknown processor" }
    defer { unsafe fclose(file) }
    var line = [CChar](repeating: 0, count: 4096)
    while unsafe fgets(&line, CInt(line.count), file) != nil {
      let text = String(decoding: line.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
      let parts = text.split(separator: ":", maxSplits: 1)
      guard parts.count == 2, parts[0].hasPrefix("model name") else { continue }
      return parts[1].split(whereSeparator: \.isWhitespace).joined(separator: " ")
    }
    return "unknown processor"
  }
}
