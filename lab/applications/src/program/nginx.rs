//! A private nginx in front of PHP-FPM or a program that speaks HTTP.

use anyhow::Result;

use super::words;
use crate::folder::Folder;
use crate::site::Settings;

/// Debian's packages.
pub(crate) const PACKAGES: [&str; 1] = ["nginx-light"];

/// What a `location` for PHP contains.
pub(crate) const PHP: &str = "
            fastcgi_pass unix:@FOLDER@/run/php.sock;
            fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name;
            fastcgi_param SCRIPT_NAME $fastcgi_script_name;
            fastcgi_param DOCUMENT_ROOT $document_root;
            fastcgi_param QUERY_STRING $query_string;
            fastcgi_param REQUEST_METHOD $request_method;
            fastcgi_param REQUEST_URI $request_uri;
            fastcgi_param CONTENT_TYPE $content_type;
            fastcgi_param CONTENT_LENGTH $content_length;
            fastcgi_param GATEWAY_INTERFACE CGI/1.1;
            fastcgi_param SERVER_PROTOCOL $server_protocol;
            fastcgi_param SERVER_SOFTWARE nginx;
            fastcgi_param REMOTE_ADDR $remote_addr;
            fastcgi_param REMOTE_PORT $remote_port;
            fastcgi_param SERVER_ADDR $server_addr;
            fastcgi_param SERVER_PORT $server_port;
            fastcgi_param SERVER_NAME $host;
            fastcgi_param REDIRECT_STATUS 200;";

/// Writes a configuration whose `server` block on the site's port contains `server`, and returns
/// the command. `@FOLDER@` stands for the site's folder and `@PHP@` for [`PHP`]; `http` goes into
/// the `http` block.
pub(crate) fn serve(
    folder: &Folder,
    settings: &Settings,
    http: &str,
    server: &str,
) -> Result<Vec<String>> {
    let text = format!(
        "daemon off;
user www-data;
worker_processes 2;
pid @FOLDER@/run/nginx.pid;
error_log @FOLDER@/log/nginx.log warn;

events {{
    worker_connections 512;
}}

http {{
    include /etc/nginx/mime.types;
    default_type application/octet-stream;
    sendfile on;
    tcp_nopush on;
    access_log off;
    client_body_temp_path @FOLDER@/tmp/body;
    proxy_temp_path @FOLDER@/tmp/proxy;
    fastcgi_temp_path @FOLDER@/tmp/fastcgi;
    uwsgi_temp_path @FOLDER@/tmp/uwsgi;
    scgi_temp_path @FOLDER@/tmp/scgi;
    {http}
    server {{
        listen {port};
        root @FOLDER@/site;
        {server}
    }}
}}
",
        port = settings.port
    );
    let text = text.replace("@PHP@", PHP).replace("@FOLDER@", &folder.path().display().to_string());
    let file = folder.write("nginx.conf", &text)?.display().to_string();
    Ok(words(&["nginx", "-p", &folder.path().display().to_string(), "-e", "stderr", "-c", &file]))
}
