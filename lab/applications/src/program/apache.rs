//! A private Apache with PHP in its processes (mod_php, prefork).

use anyhow::Result;

use super::words;
use crate::folder::Folder;
use crate::site::Settings;

/// Debian's packages: the programs, without a service of the machine.
pub(crate) const PACKAGES: [&str; 3] = ["apache2-bin", "media-types", "libapache2-mod-php8.2"];

/// Writes a configuration that serves `site` with PHP, what is not a file by `/index.php`, and
/// returns the command.
pub(crate) fn serve(folder: &Folder, settings: &Settings) -> Result<Vec<String>> {
    folder.subfolder("run/sessions", "www-data")?;
    let modules = ["mpm_prefork", "authz_core", "dir", "mime", "php"].map(|name| {
        let file = if name == "php" { "libphp8.2.so".to_owned() } else { format!("mod_{name}.so") };
        format!("LoadModule {name}_module /usr/lib/apache2/modules/{file}\n")
    });
    let text = format!(
        "{modules}
ServerRoot @FOLDER@
ServerName localhost
Listen {port}
User www-data
Group www-data
PidFile @FOLDER@/run/apache.pid
DefaultRuntimeDir @FOLDER@/run
Mutex file:@FOLDER@/run default
ErrorLog @FOLDER@/log/apache.log
TypesConfig /etc/mime.types
StartServers {workers}
MinSpareServers 5
MaxSpareServers 10
MaxRequestWorkers 150
KeepAlive On
MaxKeepAliveRequests 0
KeepAliveTimeout 5
DocumentRoot @FOLDER@/site
DirectoryIndex index.php index.html
<Directory @FOLDER@/site>
    Require all granted
    AllowOverride None
    FallbackResource /index.php
</Directory>
<FilesMatch \"\\.php$\">
    SetHandler application/x-httpd-php
</FilesMatch>
php_admin_value opcache.revalidate_freq {revalidate}
php_admin_value session.save_path @FOLDER@/run/sessions
php_admin_value sys_temp_dir @FOLDER@/tmp
php_admin_value upload_tmp_dir @FOLDER@/tmp
php_admin_value error_log @FOLDER@/log/php.log
",
        modules = modules.concat(),
        port = settings.port,
        workers = settings.workers,
        revalidate = settings.opcache_revalidate_freq,
    );
    let text = text.replace("@FOLDER@", &folder.path().display().to_string());
    let file = folder.write("apache.conf", &text)?.display().to_string();
    Ok(words(&["apache2", "-DFOREGROUND", "-f", &file]))
}
