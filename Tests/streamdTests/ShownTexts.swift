import FoundationEssentials
import Glibc
import TestSupport
import Testing

/// All that a daemon shows to others: its log, its listings, what there is to see of its process, and files that others may
/// read. By where it is shown.
func shownTexts(
  socket: String, process: pid_t, log: String, folder: String? = nil
) async throws -> [(place: String, text: String)] {
  var shown = [("the log", log)]
  for path in ["", "stats", "metrics", "streams"].map({ "/\($0)" })
    + ["$streams", "$stats", "$clients", "$config", "$templates", "$newest", "$changes", "$history"].map({
      "/streams/\($0)"
    })
  {
    shown.append((path, try await http(socket, "GET", path).description))
    shown.append((path, try await http(socket, "GET", path).body))
  }
  for file in ["cmdline", "environ", "status", "comm", "maps"] {
    shown.append(("/proc/…/\(file)", contentOfFile("/proc/\(process)/\(file)")))
  }
  guard let folder, let names = FileManager.default.enumerator(atPath: folder) else { return shown }
  for case let name as String in names {
    let path = "\(folder)/\(name)"
    var status = Glibc.stat()
    guard lstat(path, &status) == 0, status.st_mode & S_IFMT == S_IFREG else { continue }
    // Only its user reads the others. Their names are seen.
    shown.append((path, name))
    if status.st_mode & 0o777 != 0o600 { shown.append((path, contentOfFile(path))) }
  }
  return shown
}

func contentOfFile(_ path: String) -> String {
  let descriptor = open(path, O_RDONLY)
  defer { close(descriptor) }
  var (text, buffer) = ([UInt8](), [UInt8](repeating: 0, count: 1 << 16))
  while case let count = read(descriptor, &buffer, buffer.count), count > 0 { text += buffer[..<count] }
  return String(decoding: text, as: UTF8.self)
}
